// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/history"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// answer answers a question in four steps: holders, container, free devices, choice. The choice becomes the
// plan.
func (tx *transaction) answer(q asking.Question, o observation) (ids []string, reason string, err error) {
	tx.view = o.list()
	if _, err := o.checkpoint.Get(); errors.Is(err, system.ErrHangs) {
		tx.warn("judge who asks without the kubelet's checkpoint", "error", err)
	}
	var choice *placement.Choice
	var container asking.Container
	var known asking.Knowledge
	if p := o.foreseenPlan(tx.state, q); p != nil {
		choice, container, known = p.choice, *tx.open.container, secondHalf(tx.open.container)
	} else {
		evidence := tx.fold(q, o)
		container, known = evidence.IdentifyContainer(q)
		tx.listing = tx.listing.With(o.list())
	}
	if container.ID == 0 {
		container.ID = tx.nextID()
	}
	b := tx.books()
	offer := newOffer(b, q, &container)
	tx.warnHeld(b, q, offer)
	builder := requestBuilder{newPrediction(b, &o), q, &container, offer}
	request, remark := builder.build()
	known.Remark = remark
	if choice == nil {
		chosen, err := placement.Choose(tx.tree, request)
		if err != nil {
			return nil, "", fmt.Errorf("choose %d of %s: %w", q.Size, q.Resource, err)
		}
		chosen.Reason += placement.Named("failed", b.failed())
		choice = &chosen
	}
	p := tx.makePlan(choice, q, &container, o)
	kind := tx.resources[q.Resource].Kind
	tx.observe(func(to DecisionObserver) { to.QuestionAnswered(known.Source) })
	tx.decision = &history.Decision{
		At: o.asked, Took: tx.now().Sub(o.asked), Container: container.Likely(), PodUID: container.PodUID(),
		HasQuestion: true, Known: known.For(kind),
		Resource: q.Resource, Size: q.Size, Available: len(q.Available), MustInclude: q.MustInclude,
		Tree: tx.tree, Request: request, Choice: *choice, Chosen: p.devices[q.Resource],
		Planned: p.others(q.Resource),
	}
	return p.devices[q.Resource], known.For(kind) + "; " + choice.Reason, nil
}

// foreseenPlan returns the plan if kept for exactly this question, which was read without PodResources.
func (o *observation) foreseenPlan(s *state, q asking.Question) *plan {
	read := o.view.IsKnown() || o.answer.IsKnown()
	if read || o.progress(s) != asking.Open || !s.foresees(q, o.asked) {
		return nil
	}
	return s.open.plan
}

// fold updates the state from an observation, holders included, and returns the evidence for the asker.
func (tx *transaction) fold(q asking.Question, o observation) *asking.Evidence {
	e := o.evidence(tx.state)
	tx.endRejected(e, lives)
	if !e.Recorded.IsKnown() && e.View.IsKnown() { // List shows the devices of all containers before the latest
		tx.allocates = slices.DeleteFunc(slices.Clone(tx.allocates), func(a holders.Allocate) bool {
			return e.Newest == nil || !device.SameSet(a.IDs, e.Newest.Devices[a.Resource])
		})
	}
	found := holders.Look(o.sources(tx.state, q))
	tx.allocates, tx.known = found.Allocates, found.Known
	tx.hold(found.Holders)
	e.Holders = found.Holders
	return e
}

// warnHeld reports offered devices with a different holder.
func (tx *transaction) warnHeld(b *books, q asking.Question, o offer) {
	for _, id := range o.held {
		tx.warn("kubelet offers a device that is in use", "resource", q.Resource, "device", id, "owner",
			ownerName(b.held.Of(q.Resource, id)))
	}
}

// makePlan makes a choice the plan for the container of a question.
func (tx *transaction) makePlan(
	choice *placement.Choice, q asking.Question, container *asking.Container, o observation,
) *plan {
	p := newPlan(choice, tx.resources, q, *container)
	_, unknown := o.manager.Get()
	p.predicted = unknown != nil && len(tx.resources.Nodes(q.Resource, q.Available)) == 0
	p.expires = tx.now().Add(planTTL)
	tx.ask(container, p, q.Resource, o.recorded())
	return p
}
