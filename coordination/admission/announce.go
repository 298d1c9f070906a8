// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/resources"
	"github.com/tandem-k8s/tandem/topology"
)

// Announced is the announced devices of all plugins, and their PCI tree.
type Announced struct {
	Tree      *topology.Tree
	Resources []*resources.Resource // by name
}

// Announce replaces the devices of a plugin.
func (c *Coordinator) Announce(name string, kind device.Kind, a device.Announcement) error {
	defer c.store.touch()
	if err := c.Refresh(a); err != nil {
		c.Log.Warn("PCI tree not read; using the last known tree", "error", err)
	}
	c.reader.inFlight.forget(name)
	err := c.decide(func(tx *transaction) (err error) {
		tx.tree = c.Newest() // possibly newer than this announcement
		tx.resources, err = tx.resources.Announce(name, kind, a)
		tx.hold(tx.found)
		return err
	})
	if err != nil {
		return err
	}
	c.signalAnnouncement()
	c.tidyPairs()
	return nil
}

// Leave marks the plugin of a resource as gone.
func (c *Coordinator) Leave(name string) {
	defer c.store.touch()
	// after the end of the server, nobody is told
	_ = c.decide(func(tx *transaction) error {
		tx.resources = tx.resources.Leave(name)
		tx.hold(tx.found)
		return nil
	})
	c.signalAnnouncement()
}

// Announced returns the announced devices, and a channel that is closed after a possible change.
func (c *Coordinator) Announced() (Announced, <-chan struct{}) {
	var changed <-chan struct{}
	c.locked(func() { changed = c.nextAnnouncement() })
	s := c.current()
	return Announced{s.tree, s.resources.All()}, changed
}
