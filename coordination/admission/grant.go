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
	progress  asking.Progress // of the open admission before
	asked     bool            // the kubelet asked for the devices
	plan      *plan           // fulfilled by the Allocate, nil for none
	planned   []string        // the IDs in the order of the plan
	container *asking.Container
}

// isSure reports whether all devices of the container certainly belong to a single container: the kubelet's
// checkpoint shows unfinished allocation, or PodResources showed the devices at the question for the rest.
func (g grant) isSure() bool { return g.progress == asking.Open || g.isShown() }

// isShown reports whether PodResources showed the container's devices at the question for the rest.
func (g grant) isShown() bool { return g.plan != nil && g.container.Shown }

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

// take records an Allocate for its most likely container, which becomes the open one. Before is the fate of
// the container of the open admission.
func (tx *transaction) take(o observation, name string, ids []string, before fate) grant {
	e := o.evidence(tx.state)
	if o.answer.IsKnown() {
		found := holders.Look(o.sources(tx.state, asking.Question{}))
		e.Holders, tx.known = found.Holders, found.Known
	}
	if !tx.open.proves(name, ids, o.asked) {
		tx.endRejected(e, before)
	}
	g := grant{name: name, ids: ids, progress: e.Progress}
	tx.fulfilPlan(name, ids)
	g.asked = tx.isAsked(name, ids)
	if tx.open.allocated() != nil && e.Progress == asking.Complete && !g.asked {
		tx.end() // the container did not request the rest
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
	tx.version++
	tx.recordAllocate(g.container, holders.Allocate{
		Resource: name, IDs: slices.Clone(ids), Anew: anew, Recorded: o.recorded(),
	})
	if tx.open != nil && tx.open.container.ID != g.container.ID {
		tx.endPlan(Dropped)
		g.asked = false
	}
	if p := tx.livePlan(); p != nil {
		delete(p.devices, name) // fulfilled, or overruled
	}
	tx.open = tx.open.of(g.container)
	tx.open.at, tx.open.foreseen, tx.open.recorded = tx.now(), g.plan != nil, o.recorded()
	return g
}

// isAsked reports whether the latest question was for as many devices of a resource, and has had no Allocate.
func (tx *transaction) isAsked(name string, ids []string) bool {
	p := tx.livePlan()
	return p != nil && p.resource == name && len(p.devices[name]) == len(ids)
}

// recipientOf returns the container of an Allocate, the devices included: the container of the fulfilled
// plan; else the container identified by a request source; else the container of the open admission, unless
// complete; else a new container, with ID 0.
func recipientOf(s *state, g grant, e *asking.Evidence) *asking.Container {
	c := asking.Container{Unasked: true}
	n := e.Newest
	switch found := e.IdentifyRecipient(asking.Question{Resource: g.name, Size: len(g.ids)}); {
	case g.plan != nil:
		c = *s.open.container
	case found != nil:
		if c = e.ContainerOf(found, g.name); c.ID == 0 && s.open != nil && s.open.container.Asker.Is(found) {
			c.ID = s.open.container.ID
		} else if c.ID == 0 {
			c.Unasked = true
		}
	case g.asked:
		c = *s.open.container
	case n == nil || n.Owner != nil:
	case e.Progress == asking.Open && n.Lacks(g.name) && s.resources.SameNodes(n.Devices, g.name, g.ids):
		c = *n
		c.Guessed = c.Guessed || c.Asker == nil && !c.Looked
	case e.Progress == asking.Open && e.Recent && !n.Lacks(g.name) && n.Newest != g.name:
		c = *n // with devices of a rejected container: the kubelet allocates a resource of a container once
	case e.Progress == asking.Unknown && e.Recent && n.HasAny(kubelet.Devices{g.name: g.ids}):
		c = *n // an app container takes over from its init container
	}
	c = c.WithDevices(g.name, slices.Clone(g.ids))
	return &c
}
