// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/test/apiserver"
	"github.com/tandem-k8s/tandem/test/apiserver/client"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// TestKilledAtRequest: a process is killed before or after the effect of a request only while it is aimed at,
// also if the server answers the request much later.
func TestKilledAtRequest(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		aim           aim
		ends          bool // the aim, before the server answers
		killed, makes bool // the process, and a slice
	}{
		"before":                 {aim{makeSlice, false}, false, true, false},
		"after":                  {aim{makeSlice, true}, false, true, true},
		"another request":        {aim{writeSlice, true}, false, false, true},
		"after the call's end":   {aim{makeSlice, true}, true, false, true},
		"before, although ended": {aim{makeSlice, false}, true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := apiserver.New()
				s.FallSilent()
				p := &process{sockets: newSockets(), node: &Node{server: s}, cancel: func() {}}
				p.life, p.die = context.WithCancel(t.Context())
				p.aim.Store(&test.aim)
				asked := make(chan error)
				go func() { asked <- post(t, p) }()
				seeds.Sleep(time.Minute)
				if test.ends {
					p.aim.Store(nil)
				}
				s.Heal()
				err := <-asked
				if killed := p.killed.Load(); killed != test.killed || errors.Is(err, errKilled) != killed {
					t.Errorf("killed: %t, want %t: %v", killed, test.killed, err)
				}
				if made := len(apiserver.List[*resourceapi.ResourceSlice](s)) == 1; made != test.makes {
					t.Errorf("a slice is made: %t, want %t", made, test.makes)
				}
			})
		})
	}
}

// post makes a slice.
func post(t *testing.T, p *process) error {
	t.Helper()
	_, err := client.New(transport{p}).ResourceV1().ResourceSlices().Create(t.Context(),
		&resourceapi.ResourceSlice{}, metav1.CreateOptions{})
	return err
}
