// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"time"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// transaction is a decision in progress: a copy of the state, and a report. Both take effect at the commit.
type transaction struct {
	*state
	report
	now func() time.Time
}

// livePlan returns the plan, nil if expired.
func (tx *transaction) livePlan() *plan { return tx.open.live(tx.now()) }

// ask makes the container of a question the open one, with its plan, and reports the outcome of the plan
// before. Name is the resource of the question.
func (tx *transaction) ask(c *asking.Container, next *plan, name string, recorded kubelet.Identity) {
	tx.expirePlan()
	if before := tx.open; before != nil && before.plan != nil && before.container.ID == c.ID &&
		before.plan.promised[name] != nil {
		next.promised, next.until = before.plan.promised, before.plan.until // the rest of the same container
	} else {
		tx.endPlan(Dropped)
		next.promised, next.until = next.others(name), next.expires
		if n := len(next.promised); n > 0 {
			tx.observe(func(o DecisionObserver) { o.Planned(n) })
		}
	}
	tx.open = tx.open.of(c)
	tx.open.plan, tx.open.recorded, tx.open.at, tx.open.foreseen = next, recorded, tx.now(), false
}

// endRejected closes the open admission if the kubelet has rejected the container's pod, by its fate or by
// the evidence, and frees the devices; or if the pod may have been rejected, or nothing relates the container
// to a call.
func (tx *transaction) endRejected(e *asking.Evidence, of fate) {
	if tx.open == nil || tx.open.allocated() != nil && e.Progress == asking.Complete {
		return
	}
	c := tx.open.container
	if e.Newest != nil {
		c = e.Newest
	}
	switch {
	case of == isOut || e.IsGone(c):
		tx.release(tx.open.container)
	case of == lives && !e.IsUnrelated(c):
		return
	}
	tx.end()
	e.Progress, e.Newest = asking.Complete, nil
}

// end closes the open admission: no call for its container follows. The container keeps its devices until the
// kubelet's records show their end, or until release.
func (tx *transaction) end() {
	tx.endPlan(Dropped)
	tx.open = nil
}

// fulfilPlan reports the outcome of the promise for an allocated resource.
func (tx *transaction) fulfilPlan(name string, ids []string) {
	tx.expirePlan()
	p := tx.plan()
	if p == nil || p.promised[name] == nil {
		return
	}
	outcome := Overruled
	if device.SameSet(p.promised[name], ids) {
		outcome = Kept
	}
	delete(p.promised, name)
	tx.observe(func(o DecisionObserver) { o.PlanEnded(outcome) })
}

// plan returns the plan, expired or not; nil for none.
func (tx *transaction) plan() *plan {
	if tx.open == nil {
		return nil
	}
	return tx.open.plan
}

// expirePlan reports an expired promise.
func (tx *transaction) expirePlan() {
	if p := tx.plan(); p != nil && !tx.now().Before(p.until) {
		tx.endPromise(Expired)
	}
}

// endPlan removes the plan.
func (tx *transaction) endPlan(outcome PlanOutcome) {
	if tx.endPromise(outcome); tx.open != nil {
		tx.open.plan = nil
	}
}

// endPromise reports the outcome of all remaining promises.
func (tx *transaction) endPromise(outcome PlanOutcome) {
	p := tx.plan()
	if p == nil {
		return
	}
	for range p.promised {
		tx.observe(func(o DecisionObserver) { o.PlanEnded(outcome) })
	}
	p.promised = nil
}
