// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// A plan answers the second question of a container only directly after the first Allocate, and only if the
// kubelet offers no device of another pod.
func TestForesees(t *testing.T) {
	t.Parallel()
	now := time.Now()
	q := &api.PreferRequest{Resource: vfs, Available: []string{"v1", "v2"}, Size: 1}
	for name, c := range map[string]struct {
		change func(s *state)
		want   bool
	}{
		"as planned":               {func(*state) {}, true},
		"another Allocate since":   {func(s *state) { s.open.foreseen = false }, false},
		"the plan has expired":     {func(s *state) { s.open.plan.expires = now }, false},
		"long after the Allocate":  {func(s *state) { s.open.at = now.Add(-asking.FollowWindow) }, false},
		"another number":           {func(s *state) { s.open.plan.devices[vfs] = []string{"v1", "v2"} }, false},
		"a planned device is gone": {func(s *state) { s.open.plan.devices[vfs] = []string{"v3"} }, false},
		"an offered device is held": {func(s *state) {
			s.hold(holders.Holders{{Devices: kubelet.Devices{vfs: {"v2"}}}})
		}, false},
	} {
		s := newState(nil)
		s.open = &openAdmission{
			container: &asking.Container{
				Looked: true, Owner: &kubelet.Container{}, Devices: kubelet.Devices{gpus: {"g1"}},
			},
			plan: &plan{
				devices: map[string][]string{vfs: {"v1"}}, choice: &placement.Choice{}, expires: now.Add(planTTL),
			},
			at: now, foreseen: true,
		}
		c.change(s)
		if got := s.foresees(q, now); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// The kubelet rejects the pod of a refused container: the next question is of another container, although the
// checkpoint is unchanged.
func TestRefusedContainerIsComplete(t *testing.T) {
	t.Parallel()
	c := emptyServer()
	c.current().open = &openAdmission{container: &asking.Container{Devices: kubelet.Devices{gpus: {"gpu"}}}}
	_, err := c.commit(func(tx *transaction) error {
		tx.refuse(grant{name: gpus, ids: []string{"gpu"}}, RefusedDouble,
			refusal{said: "another pod has the device"})
		return nil
	})
	progress := c.current().open.progress(kubelet.Identity{})
	if progress != asking.Complete || err != nil {
		t.Errorf("progress %v, %v", progress, err)
	}
}

// The app container that has taken a device over is the holder, not the init container of the pod.
func TestHolderAfterAnInitContainer(t *testing.T) {
	t.Parallel()
	devices := kubelet.Devices{gpus: {"gpu"}}
	app, before := holders.Holder{Name: "app", Devices: devices}, holders.Holder{Devices: devices, Init: true}
	for _, found := range []holders.Holders{{app, before}, {before, app}} {
		if h := newBooks(nil, nil, found).held.Of(gpus, "gpu"); h == nil || h.Name != "app" {
			t.Errorf("of %v: %v", found, h)
		}
	}
}

// A kubelet that has lost its records gives devices of a running container to another, and rejects that one:
// the container, known by its Allocates at an earlier kubelet, keeps its devices.
func TestRejectedContainerFreesItsOwnDevices(t *testing.T) {
	t.Parallel()
	for life, left := range map[string]int{"first": 1, "second": 0, "": 0} {
		c := &asking.Container{ID: 1, Devices: kubelet.Devices{gpus: {"g1", "g2"}}}
		s := emptyServer().current().clone()
		s.allocates = []holders.Allocate{{Resource: gpus, IDs: c.Devices[gpus], Life: "second"}}
		devices := kubelet.Devices{gpus: {"g1"}}
		s.hold(holders.Holders{{UID: "u", Name: "c", Devices: devices, Open: true, Life: life}})
		s.release(c)
		if len(s.found) != left || len(s.allocates) > 0 {
			t.Errorf("kubelet %q: %d holders, %d Allocates", life, len(s.found), len(s.allocates))
		}
	}
}
