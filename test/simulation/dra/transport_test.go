// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
				s := newServer(Options{})
				s.leave(true)
				p := &process{
					sockets: newSockets(), node: &Node{server: s}, dead: make(chan struct{}), cancel: func() {},
				}
				p.aim.Store(&test.aim)
				asked := make(chan error)
				go func() { asked <- post(t, p) }()
				seeds.Sleep(time.Minute)
				if test.ends {
					p.aim.Store(nil)
				}
				s.heal()
				err := <-asked
				if killed := p.killed.Load(); killed != test.killed || errors.Is(err, errKilled) != killed {
					t.Errorf("killed: %t, want %t: %v", killed, test.killed, err)
				}
				if made := len(s.objects) == 1; made != test.makes {
					t.Errorf("a slice is made: %t, want %t", made, test.makes)
				}
			})
		})
	}
}

// post makes a slice.
func post(t *testing.T, p *process) error {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://server"+slicesPath,
		strings.NewReader("{}"))
	if err != nil {
		return err
	}
	answer, err := transport{p}.RoundTrip(r)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}
