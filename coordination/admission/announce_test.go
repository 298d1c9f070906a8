// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/topology"
)

// The kubelet can ask before the announcement of the plugin that it asks has arrived.
func TestQuestionWaitsForTheAnnouncement(t *testing.T) {
	a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
	a.coordinator.startAt(a.coordinator.current().tree, a.coordinator.now)
	q := &api.PreferRequest{Resource: gpus, Available: []string{a.all[gpus][0].ID, a.all[gpus][1].ID}, Size: 1}
	synctest.Test(t, func(t *testing.T) {
		if _, _, err := a.coordinator.Prefer(t.Context(), q); err == nil {
			t.Error("a question about what nobody announces is answered")
		}
		answered := make(chan []string, 1)
		go func() {
			ids, _, err := a.coordinator.Prefer(t.Context(), q)
			if err != nil {
				t.Error(err)
			}
			answered <- ids
		}()
		synctest.Wait()
		if len(answered) > 0 {
			t.Error("answered before the announcement")
		}
		if err := a.coordinator.Announce(gpus, device.GPU, device.Announcement{Devices: a.all[gpus]}); err != nil {
			t.Error(err)
		}
		if ids := <-answered; len(ids) != 1 {
			t.Errorf("answer %v", ids)
		}
	})
}

// What the flood cannot show: what is kept does not grow without end.
func TestStateIsBounded(t *testing.T) {
	a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
	for i := range 2 * device.MaxResources {
		_ = a.coordinator.Announce(fmt.Sprint("resource-", i), device.VF, device.Announcement{})
		a.allocated(fmt.Sprint("other-", i), []string{"x"})
	}
	a.coordinator.current().hold(make(holders.Holders, maxHolders))
	for i := range 2 * maxAllocates {
		a.allocated("many", []string{fmt.Sprint(i)})
	}
	if s := a.coordinator.current(); len(s.resources) > device.MaxResources || len(s.found) > maxHolders ||
		len(s.allocates) > maxAllocates {
		t.Errorf("%d resources, %d holders, %d Allocates", len(s.resources), len(s.found), len(s.allocates))
	}
}

// Of two announcements at a time the tree stays that was read last.
func TestNewestTreeStays(t *testing.T) {
	a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
	c := a.coordinator
	newest := c.current().tree
	sourcesOf(c).newest = func() *topology.Tree { return newest }
	var other bool
	sourcesOf(c).refresh = func(device.Announcement) error { // the first one is slow here
		if !other {
			other = true
			newest = new(topology.Tree)
			if err := c.Announce(vfs, device.VF, device.Announcement{Devices: a.all[vfs]}); err != nil {
				t.Error(err)
			}
		}
		return nil
	}
	if err := c.Announce(gpus, device.GPU, device.Announcement{Devices: a.all[gpus]}); err != nil {
		t.Fatal(err)
	}
	if c.current().tree != newest {
		t.Error("an older tree has replaced the newest")
	}
}
