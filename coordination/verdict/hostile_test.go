// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	testserver "github.com/tandem-k8s/tandem/test/server"
)

// An object beyond the limits is refused first.
func TestHostileObjects(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*v1alpha1.Spec){
		"devices":   func(s *v1alpha1.Spec) { s.Resources[0].Devices = 1 << 60 },
		"negative":  func(s *v1alpha1.Spec) { s.Resources[1].Devices = -1 },
		"numbers":   func(s *v1alpha1.Spec) { s.Resources[0].Unhealthy = "0-99999999999" },
		"hints":     func(s *v1alpha1.Spec) { s.Resources[0].Hints["0"] = "0-99999999999" },
		"held":      func(s *v1alpha1.Spec) { s.Held[0].Containers[0].Devices[gpus] = "0-99999999999" },
		"redirect":  func(s *v1alpha1.Spec) { s.Switches[0].Redirected = -1 },
		"a CPU":     func(s *v1alpha1.Spec) { s.Resources[0].Name = "cpu" },
		"the same":  func(s *v1alpha1.Spec) { s.Resources[0].Name = vfs },
		"NUMA node": func(s *v1alpha1.Spec) { s.NUMANodes[1].Number = 1 << 40 },
		"40 NUMA nodes": func(s *v1alpha1.Spec) {
			for i := range 40 {
				s.Resources[0].Hints[fmt.Sprint(i)] = "0"
			}
		},
	} {
		topology := testserver.Topology("a", 1, true)
		testserver.Hold(topology, "pod", "0", "")
		if _, err := New(topology, nil); err != nil {
			t.Fatal(err)
		}
		spoil(&topology.Spec)
		if _, err := New(topology, nil); err == nil {
			t.Errorf("%s: it is read", name)
		}
	}
}

// FuzzObject modifies an object, then reads and queries it, quickly and without a panic.
func FuzzObject(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		seed := make([]byte, 8+i%24)
		for k := range seed {
			seed[k] = byte(random.Uint32())
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o := testserver.Topology("a", 2, true)
		testserver.Hold(o, "pod", "0-1", "0,3")
		testserver.Spoil(&o.Spec, data)
		began := time.Now()
		n, err := New(o, nil)
		if err == nil {
			s := n.State(func(types.UID) bool { return true })
			for _, pod := range []int{1, 8} {
				s.Ask(testserver.Pod("asks", pod, pod))
				s.Admit(testserver.Pod(fmt.Sprint("comes-", pod), pod, pod))
			}
			s.Room()
			s.Stranded()
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("%v", took)
		}
	})
}
