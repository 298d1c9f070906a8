// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// A plan has a lifetime, and a call is recent for a much shorter one.
func TestOpenAdmissionInTime(t *testing.T) {
	t.Parallel()
	now := time.Now()
	a := &openAdmission{Plan: &plan{Expires: now.Add(planTTL)}, at: now}
	if a.live(now.Add(planTTL-1)) == nil || a.live(now.Add(planTTL)) != nil {
		t.Error("the plan does not live for its lifetime")
	}
	if !a.isRecent(now.Add(FollowWindow-1)) || a.isRecent(now.Add(FollowWindow)) {
		t.Error("a call is not recent within the window alone")
	}
}

// The kubelet rejects the pod of a refused container: the next question is of another container, although the
// checkpoint is unchanged.
func TestRefusedContainerIsComplete(t *testing.T) {
	t.Parallel()
	c := emptyServer()
	c.current().open = &openAdmission{Container: &recipient{Devices: kubelet.Devices{gpus: {"gpu"}}}}
	_, err := c.commit(func(tx *transaction) error {
		tx.refuseGrant(grant{resource: gpus, ids: []string{"gpu"}}, RefusedDouble,
			refusal{said: "another pod has the device"})
		return nil
	})
	progress := c.current().open.progress(kubelet.Identity{})
	if progress != progressComplete || err != nil {
		t.Errorf("progress %v, %v", progress, err)
	}
}

// The app container that has taken a device over is the holder, not the init container of the pod.
func TestHolderAfterAnInitContainer(t *testing.T) {
	t.Parallel()
	devices := kubelet.Devices{gpus: {"gpu"}}
	app, before := holders.Holder{Name: "app", Devices: devices}, holders.Holder{Devices: devices, Init: true}
	for _, found := range []holders.Holders{{app, before}, {before, app}} {
		if h := newBooks(nil, nil, found).holders.Of(gpus, "gpu"); h == nil || h.Name != "app" {
			t.Errorf("of %v: %v", found, h)
		}
	}
}

// A kubelet that has lost its records gives devices of a running container to another, and rejects that one:
// the container, known by its Allocates at an earlier kubelet, keeps its devices.
func TestRejectedContainerFreesItsOwnDevices(t *testing.T) {
	t.Parallel()
	for life, left := range map[string]int{"first": 1, "second": 0, "": 0} {
		c := &recipient{ID: 1, Devices: kubelet.Devices{gpus: {"g1", "g2"}}}
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
