// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
)

// Allocated records devices allocated by the kubelet. After ctx is done nothing is refused: the plugin has
// passed the devices to the container. The error is ErrClosed if nothing was recorded.
func (c *Coordinator) Allocated(
	ctx context.Context, resource string, ids []string,
) (answer *api.AllocatedResponse, err error) {
	defer c.store.changed.Fire()
	a := c.reader.readAllocate(ctx, c.current(), c.now(), resource, ids)
	answer, refused, err := c.decideAllocate(a, ctx.Err() == nil, refusedStates{})
	if answer.GetRefusal() != "" && ctx.Err() != nil { // too late
		answer, _, err = c.decideAllocate(a, false, refused)
	}
	return answer, err
}

// refusedStates has the states before and after a refusal.
type refusedStates struct{ before, after *state }

// undo returns to the state before a refusal. Version and IDs go on: an observation may be of the state
// after.
func (tx *transaction) undo(refused refusedStates) {
	before := refused.before.clone()
	before.version, before.ids = tx.version, tx.ids
	tx.state = before
}

// decideAllocate decides about an Allocate: a refusable one may be refused. The state before a refusal that
// came too late returns, unless another decision has followed; log, metrics and history keep the refusal.
func (c *Coordinator) decideAllocate(
	a allocateInput, refusable bool, late refusedStates,
) (answer *api.AllocatedResponse, states refusedStates, err error) {
	err = c.decide(func(tx *transaction) error {
		states.before = c.current()
		if states.before == late.after {
			tx.undo(late)
		}
		states.after = tx.state
		tx.warnHung(a.observation, "judge whose devices these are without the kubelet's checkpoint")
		if a.double.said != "" && !refusable {
			tx.error("a container has a device that it should have been refused: the coordinator was late",
				"reason", a.double.full())
		} else if a.double.said != "" {
			if n := tx.open.allocated(); tx.open.progress(a.recorded()) == progressOpen && n.Lacks(a.resource) {
				tx.release(n) // the refused container
			}
			asked := tx.isAsked(a.resource, a.ids)
			answer = tx.refuseGrant(grant{resource: a.resource, ids: a.ids, asked: asked}, RefusedDouble, a.double)
			return nil
		}
		g := tx.takeDevices(a)
		if apart := findMisalignment(tx.books(), g, c.Alignment); apart.said != "" && refusable {
			tx.release(g.container)
			answer = tx.refuseGrant(g, RefusedAlignment, apart)
			return nil
		}
		answer = tx.acceptGrant(g)
		return nil
	})
	return answer, states, err
}

// Returned records the end of an Allocate: the kubelet is about to receive the answer and goes on with the
// container, or an error and rejects the pod. After ctx is done the kubelet has gone on with another
// container. The error is ErrClosed.
func (c *Coordinator) Returned(ctx context.Context, resource string, ids []string, failed bool) error {
	if failed {
		return c.closeFailed(ctx, resource, ids)
	}
	return c.decide(func(tx *transaction) error {
		if tx.open != nil && device.SameSet(tx.open.Devices[resource], ids) {
			tx.open.at = tx.now()
		}
		return nil
	})
}

// closeFailed closes the open admission if an Allocate that a plugin has failed is its next one, or its
// latest.
func (c *Coordinator) closeFailed(ctx context.Context, resource string, ids []string) error {
	defer c.store.changed.Fire()
	var o observation
	o.checkpoint = kubelet.Read(c.Kubelet.Checkpoint())
	return c.decide(func(tx *transaction) error {
		if ctx.Err() != nil {
			return nil
		}
		isNext := tx.open != nil && tx.resources[resource] != nil && tx.open.Container.Lacks(resource)
		if isNext || tx.open != nil && device.SameSet(tx.open.Devices[resource], ids) {
			tx.endRejected(o.evidence(tx.state), allGone)
			tx.endAdmission()
		}
		return nil
	})
}

// Announced is the announced devices of all plugins, and their PCI tree.
type Announced struct {
	Tree      *topology.Tree
	Resources []*device.Resource // by name
	Before    holders.Sources    // the last holders, for a search in newer records
}

// Announce replaces the devices of a plugin.
func (c *Coordinator) Announce(resource string, kind device.Kind, a device.Announcement) error {
	defer c.store.changed.Fire()
	if err := c.Machine.Refresh(a); err != nil {
		c.Log.Warn("PCI tree not read; using the last known tree", "error", err)
	}
	err := c.decide(func(tx *transaction) (err error) {
		tx.tree = c.Machine.Newest() // possibly newer than this announcement
		tx.resources, err = tx.resources.Announce(resource, kind, a)
		tx.hold(tx.found)
		return err
	})
	if err != nil {
		return err
	}
	c.locked(c.announced.Raise)
	c.tidyPairs()
	return nil
}

// Leave marks the plugin of a resource as gone.
func (c *Coordinator) Leave(resource string) {
	defer c.store.changed.Fire()
	// after the end of the server, nobody is told
	_ = c.decide(func(tx *transaction) error {
		tx.resources = tx.resources.Leave(resource)
		tx.hold(tx.found)
		return nil
	})
	c.locked(c.announced.Raise)
}

// Announced returns the announced devices, and a channel that is closed after a possible change.
func (c *Coordinator) Announced() (Announced, <-chan struct{}) {
	var changed <-chan struct{}
	c.locked(func() { changed = c.announced.Next() })
	s := c.current()
	before := holders.Sources{Before: s.found, Unlisted: s.unlisted, Known: s.known, Life: c.Kubelet.Life()}
	return Announced{s.tree, s.resources.All(), before}, changed
}
