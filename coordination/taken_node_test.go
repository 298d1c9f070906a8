// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"testing"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
)

// publishSlowly publishes the VF vf2, and returns while the server reads the PCI tree, until release.
func publishSlowly(c *admission.Coordinator, m *Member) (release func()) {
	reading, read := make(chan struct{}), make(chan struct{})
	own := c.Machine
	c.Machine = refreshed{own, func(a device.Announcement) error {
		close(reading)
		<-read
		return own.Refresh(a)
	}}
	m.Publish(device.Announcement{
		Devices: []device.Device{{ID: "vf2", Address: topology.Address{Bus: 4}, Healthy: true}},
	})
	<-reading
	return func() { close(read) }
}

// What a plugin publishes counts as taken over when the server goes by it, not when it is sent.
func TestAwaitTaken(t *testing.T) {
	server, members, _ := serverAndClient(t)
	c := server.election.serving.Load().coordinator
	release := publishSlowly(c, members[vfs])
	select {
	case <-members[vfs].announced.taken:
		t.Error("taken over before the PCI tree was read")
	default:
	}
	release()
	members[vfs].AwaitTaken(t.Context())
	for _, r := range c.Resources() {
		for _, d := range r.GetDevices() {
			if d := d.GetDevice(); d.GetId() == "vf2" && d.GetHealthy() {
				return
			}
		}
	}
	t.Error("the server does not go by what is taken over")
}
