// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	testserver "github.com/tandem-k8s/tandem/test/server"
)

// A question assigns nothing, also where the verdict depends on the chosen devices.
func TestAskChangesNothing(t *testing.T) {
	t.Parallel()
	s := newNode(t, testserver.Topology("a", 1, true)).State(nobody)
	before := s.Same()
	pod := testserver.Pod("two", 2, 2)
	pod.Spec.Containers = append(pod.Spec.Containers, container("next", 2, 2))
	pod.Annotations = map[string]string{intent.AlignmentKey: string(intent.Required)}
	if v := s.Ask(pod); !v.Admitted || s.Same() != before || s.Holds("two") {
		t.Errorf("%+v; the state has changed: %t", v, s.Same() != before)
	}
}

// A copy of a state is independent.
func TestCloneIsIndependent(t *testing.T) {
	t.Parallel()
	s := newNode(t, testserver.Topology("a", 1, true)).State(nobody)
	before := s.Same()
	c := s.Clone()
	c.Admit(testserver.Pod("one", 1, 1))
	if s.Same() != before || s.Holds("one") || !c.Holds("one") || c.Same() == before {
		t.Error("an admission to the copy has changed the state")
	}
}

// A pod that holds its devices keeps the devices.
func TestAdmittedAgain(t *testing.T) {
	t.Parallel()
	s := newNode(t, testserver.Topology("a", 1, true)).State(nobody)
	first := s.Admit(testserver.Pod("one", 1, 1))
	after := s.Same()
	if again := s.Admit(testserver.Pod("one", 1, 1)); !reflect.DeepEqual(again, first) || s.Same() != after {
		t.Errorf("got %+v\nwant %+v", again, first)
	}
}

// A pod that holds its devices is admitted, also where others hold the rest.
func TestAskOfPodWithDevices(t *testing.T) {
	t.Parallel()
	s := newNode(t, testserver.Topology("a", 1, true)).State(nobody)
	s.Admit(testserver.Pod("one", 4, 4))
	s.Admit(testserver.Pod("two", 4, 4))
	for name, admitted := range map[string]bool{"one": true, "two": true, "three": false} {
		if v := s.Ask(testserver.Pod(name, 4, 4)); v.Admitted != admitted {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// Which of several devices of init containers a container reuses is chance for the kubelet's second such
// container; devices of another resource leave nothing to chance.
func TestChance(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		init, app [2]int // GPUs and VFs
		chance    bool
	}{
		"two containers reuse GPUs":               {[2]int{2, 0}, [2]int{1, 0}, true},
		"two containers have no use for the GPUs": {[2]int{2, 0}, [2]int{0, 1}, false},
		"no devices are left":                     {[2]int{0, 0}, [2]int{1, 0}, false},
	} {
		pod := testserver.Pod("pod", c.app[0], c.app[1])
		pod.Spec.InitContainers = []v1.Container{container("init", c.init[0], c.init[1])}
		pod.Spec.Containers = append(pod.Spec.Containers, container("next", c.app[0], c.app[1]))
		for verb, verdict := range map[string]func(*State, *v1.Pod) Verdict{
			"Ask": (*State).Ask, "Admit": (*State).Admit,
		} {
			v := verdict(newNode(t, testserver.Topology("a", 1, true)).State(nobody), pod)
			if !v.Admitted || v.Chance != c.chance {
				t.Errorf("%s: %s: %+v, want chance %t", name, verb, v, c.chance)
			}
		}
	}
}

// The object also lists pods that have ended: they hold nothing.
func TestPodsThatArePresent(t *testing.T) {
	t.Parallel()
	topology := testserver.Topology("a", 1, true)
	testserver.Hold(topology, "ended", "0-3", "")
	n := newNode(t, topology)
	for present, admitted := range map[bool]bool{true: false, false: true} {
		s := n.State(func(types.UID) bool { return present })
		if v := s.Ask(testserver.Pod("all", 8, 0)); v.Admitted != admitted || s.Holds("ended") != present {
			t.Errorf("present %t: %+v", present, v)
		}
	}
}

// A pod with required alignment is refused if the VFs near its GPUs are taken.
func TestRequired(t *testing.T) {
	t.Parallel()
	topology := testserver.Topology("a", 1, true)
	topology.Spec.Held = []v1alpha1.Held{{UID: "others", Containers: []v1alpha1.Container{
		{Name: "c", Devices: map[string]v1alpha1.Set{gpus: "1-3", vfs: "0"}},
		{Name: "d", Devices: map[string]v1alpha1.Set{gpus: "4-7"}},
	}}}
	s := newNode(t, topology).State(func(types.UID) bool { return true })
	for alignment, admitted := range map[intent.Alignment]bool{"": true, intent.Required: false} {
		pod := testserver.Pod("one", 1, 1)
		pod.Annotations = map[string]string{intent.AlignmentKey: string(alignment)}
		if v := s.Ask(pod); v.Admitted != admitted || v.Required == admitted {
			t.Errorf("alignment %q: %+v", alignment, v)
		}
	}
}

// Devices that an init container leaves are of the same pod: the app container gets its pairs with them.
func TestInitContainerLeavesItsDevices(t *testing.T) {
	t.Parallel()
	s := newNode(t, testserver.Topology("a", 1, true)).State(nobody)
	pod := testserver.Pod("one", 4, 4)
	pod.Spec.InitContainers = []v1.Container{container("init", 3, 4)}
	if v := s.Admit(pod); !v.Admitted || v.Containers[len(v.Containers)-1].Pairs != 4 {
		t.Errorf("got %+v", v)
	}
}
