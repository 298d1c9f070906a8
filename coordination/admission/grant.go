// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"slices"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// grant is an Allocate with its recipient.
type grant struct {
	name      string
	ids       []string
	progress  asking.Progress   // of the container of the Allocate before
	before    *asking.Container // of the Allocate before; nil for none
	plan      *plan             // fulfilled by the Allocate, nil for none
	planned   []string          // the IDs in the order of the plan
	container *asking.Container
}

// isSure reports whether all devices of the container certainly belong to a single container: the kubelet's
// checkpoint shows unfinished allocation, or PodResources showed the devices at the question for the rest.
func (g grant) isSure() bool { return g.progress == asking.Open || g.isShown() }

// isShown reports whether PodResources showed the container's devices at the question for the rest.
func (g grant) isShown() bool { return g.plan != nil && g.plan.container.Shown }

// isGuess reports whether the kubelet may have rejected the pod of the first half, without evidence.
func (g grant) isGuess() bool {
	return g.container.Asker == nil && g.container.Guessed && !g.isShown()
}

// recipient returns the name of the container, for people.
func (g grant) recipient() string {
	if c := g.container.Likely(); c != nil {
		return c.String()
	}
	return "not known yet"
}

// reason returns the reason for the container's pairs.
func (g grant) reason() string {
	if g.plan == nil || g.plan.choice == nil {
		return "the kubelet had no choice, or chose by itself"
	}
	return g.plan.choice.Reason
}

// take records an Allocate for its most likely container. Gone reports that the container of the plan is
// gone.
func (tx *transaction) take(o observation, name string, ids []string, gone bool) grant {
	e := o.evidence(tx.state)
	e.View, e.Partial, e.Recent = o.view, true, tx.isRecent(tx.now())
	if o.answer != nil {
		found := holders.Look(o.sources(tx.state, asking.Question{}))
		e.Holders, tx.known = found.Holders, found.Known
	}
	if gone || o.view == nil && e.Abandoned() { // a view shows only some of the pods
		tx.abandon(e)
	}
	g := grant{name: name, ids: ids, progress: e.Progress, before: e.Newest}
	tx.fulfilPlan(name, ids)
	if p := tx.livePlan(); p != nil && tx.sequence > p.after && e.Progress == asking.Complete {
		tx.endPlan(Dropped) // the container did not request the rest
	}
	anew := false
	if p := tx.livePlan(); p != nil {
		anew = p.resource == name && p.anew
		if p.keeps(name, ids) {
			g.plan, g.planned = p, p.devices[name]
		}
	}
	g.container = recipientOf(tx.state, g, e)
	if g.container.ID == 0 {
		g.container.ID = tx.nextID()
	}
	if p := tx.livePlan(); p != nil {
		delete(p.devices, name) // fulfilled, or overruled
	}
	tx.version++
	tx.sequence++
	tx.recordAllocate(g.container, holders.Allocate{
		Resource: name, IDs: slices.Clone(ids), Anew: anew, Recorded: o.checkpoint.Identity,
	})
	tx.last.at, tx.last.foreseen, tx.last.refused = tx.now(), g.plan != nil, false
	tx.last.recorded = o.checkpoint.Identity
	return g
}

// recipientOf returns the container of an Allocate, the devices included: the container of the fulfilled
// plan; else the container identified by a request source; else the container of the Allocate before, unless
// complete; else a new container, with ID 0.
func recipientOf(s *state, g grant, e *asking.Evidence) *asking.Container {
	c := asking.Container{Unasked: true}
	n := s.last.container
	switch found := e.IdentifyRecipient(asking.Question{Resource: g.name, Size: len(g.ids)}); {
	case g.plan != nil:
		if c = g.plan.container; n != nil && n.ID == c.ID {
			c.Devices = n.Devices // the second half was allocated since
		}
	case found != nil:
		if c = e.ContainerOf(found, g.name); c.ID == 0 {
			c.Unasked = true
		}
	case n == nil || e.Newest == nil || n.Owner != nil:
	case e.Progress == asking.Open && n.Lacks(g.name) && s.resources.SameNodes(n.Devices, g.name, g.ids):
		c = *n
		c.Guessed = c.Guessed || c.Asker == nil && !c.Looked
	case e.Progress == asking.Unknown && e.Recent && n.HasAny(kubelet.Devices{g.name: g.ids}):
		c = *n // an app container takes over from its init container
	}
	c = c.WithDevices(g.name, slices.Clone(g.ids))
	return &c
}
