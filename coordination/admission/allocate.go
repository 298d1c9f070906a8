// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
)

// fail closes the open admission if an Allocate that a plugin has failed is its next one, or its latest: the
// kubelet rejects the pod.
func (c *Coordinator) fail(name string, ids []string) {
	defer c.store.touch()
	var o observation
	o.checkpoint = kubelet.Read(c.Recorded())
	// after the end of the server, nobody is told
	_ = c.decide(func(tx *transaction) error {
		if open := tx.open; open != nil && (open.container.Lacks(name) || device.SameSet(open.devices[name], ids)) {
			tx.endRejected(o.evidence(tx.state), isOut)
			tx.end()
		}
		return nil
	})
}

// Allocated records devices allocated by the kubelet. After ctx is done nothing is refused: the plugin has
// passed the devices to the container. The error is errClosed if nothing was recorded.
func (c *Coordinator) Allocated(ctx context.Context, name string, ids []string) (taken Taken, err error) {
	defer c.store.touch()
	o := observation{asked: c.now(), kubelet: c.reader.life()}
	o.checkpoint = kubelet.Read(c.Recorded())
	looking, cancel := context.WithTimeout(ctx, system.LookLimit) // for all reads together
	defer cancel()
	// a kubelet that hangs leaves half of the time for the request sources
	first, cancelFirst := context.WithTimeout(looking, system.LookLimit/2)
	defer cancelFirst()
	double := c.reader.findConflict(first, c.current(), c.now(), name, ids, &o)
	of := c.reader.readRecipient(looking, c.current(), c.now(), name, ids, &o)
	err = c.decide(func(tx *transaction) error {
		refusable := ctx.Err() == nil
		if double.said != "" && !refusable {
			tx.error("a container has a device that it should have been refused: the coordinator was late",
				"reason", double.full())
		} else if double.said != "" {
			if n := tx.open.allocated(); o.progress(tx.state) == asking.Open && n.Lacks(name) {
				tx.release(n) // the refused container
			}
			taken = tx.refuse(nil, name, ids, RefusedDouble, double)
			return nil
		}
		g := tx.take(o, name, ids, of)
		if apart := findMisalignment(tx.books(), g, c.Alignment); apart.said != "" && refusable {
			tx.release(g.container)
			taken = tx.refuse(g.container, name, ids, RefusedAlignment, apart)
			return nil
		}
		taken.Order, taken.Container = tx.accept(g), g.container.Likely()
		return nil
	})
	return taken, err
}
