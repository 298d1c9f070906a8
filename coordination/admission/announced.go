package admission

import (
	"github.com/tandem-k8s/tandem/coordination/resources"
	"github.com/tandem-k8s/tandem/topology"
)

// Announced is what plugins have announced, and the PCI tree in which their devices are.
type Announced struct {
	Tree      *topology.Tree
	Resources []*resources.Resource // by name
}

// Announced returns the newest, and a channel that is closed once there may be a newer.
func (c *Coordinator) Announced() (Announced, <-chan struct{}) {
	var changed <-chan struct{}
	c.locked(func() { changed = c.nextAnnounced() })
	s := c.current()
	return Announced{s.tree, s.resources.All()}, changed
}

// nextAnnounced is closed on the next announcement, and when a plugin leaves. The mutex is held.
func (c *Coordinator) nextAnnounced() <-chan struct{} {
	if c.announced == nil {
		c.announced = make(chan struct{})
	}
	return c.announced
}

// tellAnnounced lets those go who wait for an announcement.
func (c *Coordinator) tellAnnounced() {
	c.locked(func() {
		if c.announced != nil {
			close(c.announced)
			c.announced = nil
		}
	})
}
