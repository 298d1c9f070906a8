// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
)

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
