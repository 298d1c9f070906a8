// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"errors"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
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

// unrestored are managers that cannot read the object's assignments; their empty node has too few CPUs.
type unrestored struct{}

func (unrestored) Restore([]v1alpha1.Held) (ManagerState, error) {
	return nil, errors.New("CPU 3 is assigned twice")
}
func (unrestored) Empty() ManagerState   { return fewCPUs{} }
func (unrestored) Concerns(*v1.Pod) bool { return true }

type fewCPUs struct{}

func (c fewCPUs) Clone() ManagerState                         { return c }
func (fewCPUs) Hints(*v1.Pod, *v1.Container) []model.Hints    { return nil }
func (fewCPUs) Take(*v1.Pod, *v1.Container, model.Hint) error { return errors.New("not enough CPUs") }
func (fewCPUs) Remove(types.UID)                              {}

// TestIgnoredManagers: managers whose assignments cannot be read are ignored (State.Err), in every part of a
// verdict: a pod that waits for GPUs is not refused for ever because of its CPUs.
func TestIgnoredManagers(t *testing.T) {
	topology := testserver.Topology("a", 1, true)
	testserver.Hold(topology, "other", "0-7", "")
	node, err := New(topology, unrestored{})
	if err != nil {
		t.Fatal(err)
	}
	busy, empty := node.State(func(types.UID) bool { return true }), node.State(nobody)
	if v := empty.Ask(testserver.Pod("pod", 1, 1)); busy.Err() == nil || !v.Admitted {
		t.Fatalf("the managers are not ignored: %+v", v)
	}
	if v := busy.Ask(testserver.Pod("pod", 1, 1)); v.Admitted || v.Never {
		t.Errorf("while all GPUs are in use: %+v, want a refusal for now", v)
	}
}

// oneEach are managers of a node with as many CPUs: each container takes one.
type oneEach int

func (c oneEach) Restore(held []v1alpha1.Held) (ManagerState, error) {
	return &oneCPU{int(c) - len(held)}, nil
}
func (c oneEach) Empty() ManagerState { return &oneCPU{int(c)} }
func (oneEach) Concerns(*v1.Pod) bool { return true }

type oneCPU struct{ free int }

func (c *oneCPU) Clone() ManagerState                      { return &oneCPU{c.free} }
func (*oneCPU) Hints(*v1.Pod, *v1.Container) []model.Hints { return nil }
func (*oneCPU) Remove(types.UID)                           {}
func (c *oneCPU) Take(*v1.Pod, *v1.Container, model.Hint) error {
	c.free--
	if c.free < 0 {
		return errors.New("not enough CPUs")
	}
	return nil
}

// TestManagersRemember: the CPUs of pods in the object, and of admitted pods, are taken, and no others.
func TestManagersRemember(t *testing.T) {
	topology := testserver.Topology("a", 1, true)
	for _, uid := range []string{"here", "ended"} {
		topology.Spec.Held = append(topology.Spec.Held, v1alpha1.Held{UID: uid})
	}
	node, err := New(topology, oneEach(3))
	if err != nil {
		t.Fatal(err)
	}
	s := node.State(func(uid types.UID) bool { return uid == "here" })
	for _, c := range []struct {
		name     string
		admitted bool
	}{{"first", true}, {"second", true}, {"third", false}} {
		if v := s.Ask(testserver.Pod(c.name, 1, 1)); v.Admitted != c.admitted {
			t.Errorf("a question on the %s pod: %+v", c.name, v)
		}
		if v := s.Admit(testserver.Pod(c.name, 1, 1)); v.Admitted != c.admitted {
			t.Errorf("the %s pod: %+v", c.name, v)
		}
	}
}

// TestLess: a pod takes the room that is not left.
func TestLess(t *testing.T) {
	if got, want := (Room{1, 2, 4, 8}).Less(Room{0, 1, 3, 7}), (Room{1, 1, 1, 1}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestFit(t *testing.T) {
	all := model.PerNode{4, 4}
	kubelet := func(size int, free model.PerNode) (model.Mask, bool) {
		return model.Restricted.Nodes(model.Demand{Count: size, All: all, Free: free})
	}
	for _, c := range []struct {
		pairs model.PerNode
		want  Room
	}{
		{model.PerNode{4, 4}, Room{1, 2, 4, 8}},
		{model.PerNode{3, 4}, Room{0, 1, 3, 7}},
		{model.PerNode{3, 3}, Room{0, 0, 2, 6}},
		{nil, Room{}},
	} {
		if got := countFitting(c.pairs, kubelet); got != c.want {
			t.Errorf("%v: %v, want %v", c.pairs, got, c.want)
		}
	}
	asked := 0
	got := countFitting(model.PerNode{1 << 15}, func(int, model.PerNode) (model.Mask, bool) {
		asked++
		return 1, true
	})
	if want := (Room{mostRoom, mostRoom, mostRoom, mostRoom}); got != want || asked != len(sizes)*mostRoom {
		t.Errorf("of GPUs that are shared out: %v, asked %d times", got, asked)
	}
}

func TestSame(t *testing.T) {
	t.Parallel()
	topology := testserver.Topology("a", 1, true)
	a, b := newNode(t, topology).State(nobody), newNode(t, topology).State(nobody)
	if a.Same() == "" || a.Same() != b.Same() {
		t.Errorf("empty nodes: %q, %q", a.Same(), b.Same())
	}
	a.Admit(testserver.Pod("one", 1, 1))
	if a.Same() == b.Same() {
		t.Error("equal though one holds a pair")
	}
	b.Admit(testserver.Pod("other", 1, 1))
	if a.Same() != b.Same() {
		t.Error("differ though both hold the same pair")
	}
	a.Remove("one")
	if a.Same() == b.Same() {
		t.Error("equal though one holds nothing any more")
	}
}
