package admission

import (
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/intent"
)

// glance reads the kubelet's checkpoint alone, and reports whether that is enough to answer a question: it is the one that the plan is
// kept for, and the checkpoint proves that the kubelet is not done with the container that got the newest Allocate.
//
// A look at PodResources and the sources of intent would tell nothing then that decides:
//
//   - Who asks: the container that got the newest Allocate, of the one pod that the look at its first half left. Had the kubelet given it up,
//     after an error of the other plugin's, the next pod would not ask that soon, for just what is planned.
//   - What is free: the kubelet offers nothing that the ledger has with anybody. Where it does, something became free
//     or it hands a device out twice, and PodResources tells which.
//   - What else the container wants: nothing is left but what is asked for.
//
// What a look leaves behind for later questions is the same too. The pods of the first half's look count as seen, this container's among
// them, and those that have come since as new with the next: the kubelet takes none in while it admits one. The owner's name comes with
// the next look, and that shows as well if the pod has been created anew under its name (lost in observe.go).
func (c *Coordinator) glance(s *state, asked time.Time, q question) (now seen, enough bool) {
	if !s.ledger.foresees(q, asked) {
		return now, false
	}
	now.checkpoint, now.checkpointErr = c.Recorded()
	return now, s.last.progress(now.checkpoint, now.checkpointErr) == open
}

// foresees reports whether a question is for all that the plan is still kept for, directly after an Allocate of the rest of it. What it
// was made from is known to be right: PodResources was read, and one pod remains.
func (l *ledger) foresees(q question, asked time.Time) bool {
	p := l.livePlan()
	if p == nil || !l.foreseen || p.after != l.sequence-1 || !l.recent(asked) || !p.holder.looked || !p.holder.identified() {
		return false
	}
	planned := p.devices[q.resource]
	offered := func(id string) bool { return slices.Contains(q.available, id) }
	held := func(id string) bool { return l.holders[q.resource][id] != nil }
	return len(p.devices) == 1 && len(planned) == q.size && len(q.mustInclude) == 0 &&
		!slices.ContainsFunc(planned, func(id string) bool { return !offered(id) }) && !slices.ContainsFunc(q.available, held)
}

// identified reports whether it is known whose an allocation is: of one pod, if not yet of which of its containers.
func (a *allocation) identified() bool { return a.owner != nil || len(a.candidates) == 1 }

// knowledge is that of the question which led to the plan.
func (p *plan) knowledge() knowledge {
	if p.asker != nil {
		return knowledge{Source: p.asker.source, Why: p.asker.half(p.holder), asker: p.asker}
	}
	return knowledge{Source: intent.PodResources, Why: "second half of " + p.holder.ownerName()}
}
