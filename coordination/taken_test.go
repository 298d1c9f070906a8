package coordination

import (
	"testing"

	"github.com/tandem-k8s/tandem/topology"
)

// What a plugin publishes counts as taken over when the server goes by it, not when it is sent.
func TestAwaitTaken(t *testing.T) {
	server, members, _ := serverAndClient(t)
	c := server.serving.Load().coordinator
	reading, read := make(chan struct{}), make(chan struct{})
	refresh := c.refresh
	c.locked(func() {
		c.refresh = func(a Announcement) error {
			close(reading)
			<-read
			return refresh(a)
		}
	})
	members[vfs].Publish(Announcement{Devices: []Device{{ID: "vf2", Address: topology.Address{Bus: 4}, Healthy: true}}})
	<-reading
	select {
	case <-members[vfs].taken:
		t.Error("taken over before the PCI tree was read")
	default:
	}
	close(read)
	members[vfs].AwaitTaken(t.Context())
	c.locked(func() {
		if devices := c.current().ledger.resources[vfs].devices; !devices["vf2"].Healthy {
			t.Errorf("the server goes by %v", devices)
		}
	})
}

// Of two announcements at a time the tree stays that was read last.
func TestNewestTreeStays(t *testing.T) {
	a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
	c := a.coordinator
	newest := c.current().tree
	c.newest = func() *topology.Tree { return newest }
	var other bool
	c.refresh = func(Announcement) error { // the first one is slow here
		if !other {
			other = true
			newest = new(topology.Tree)
			if err := c.announce(vfs, VF, Announcement{Devices: a.all[vfs]}); err != nil {
				t.Error(err)
			}
		}
		return nil
	}
	if err := c.announce(gpus, GPU, Announcement{Devices: a.all[gpus]}); err != nil {
		t.Fatal(err)
	}
	if c.current().tree != newest {
		t.Error("an older tree has replaced the newest")
	}
}
