// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	testserver "github.com/tandem-k8s/tandem/test/server"
)

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
