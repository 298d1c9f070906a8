// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
)

// transaction is a decision in progress: a copy of the state, and a report. Both take effect at the commit.
type transaction struct {
	*state
	report
	now func() time.Time
}

// livePlan returns the plan, nil if expired.
func (tx *transaction) livePlan() *plan { return tx.plan.live(tx.now()) }

// replacePlan makes a plan the current plan, and reports the outcome of the plan before. Name is the resource
// of the question.
func (tx *transaction) replacePlan(next *plan, name string) {
	tx.expirePlan()
	before := tx.plan
	if before != nil && before.container.ID == next.container.ID && before.promised[name] != nil {
		next.promised, next.until = before.promised, before.until // the rest of the same container
		tx.plan = next
		return
	}
	tx.endPlan(Dropped)
	next.promised, next.until = next.others(name), next.expires
	if n := len(next.promised); n > 0 {
		tx.observe(func(o DecisionObserver) { o.Planned(n) })
	}
	tx.plan = next
}

// fulfilPlan reports the outcome of the promise for an allocated resource.
func (tx *transaction) fulfilPlan(name string, ids []string) {
	tx.expirePlan()
	if tx.plan == nil || tx.plan.promised[name] == nil {
		return
	}
	outcome := Overruled
	if device.SameSet(tx.plan.promised[name], ids) {
		outcome = Kept
	}
	delete(tx.plan.promised, name)
	tx.observe(func(o DecisionObserver) { o.PlanEnded(outcome) })
}

// expirePlan reports an expired promise.
func (tx *transaction) expirePlan() {
	if tx.plan != nil && !tx.now().Before(tx.plan.until) {
		tx.endPromise(Expired)
	}
}

// endPlan removes the plan.
func (tx *transaction) endPlan(outcome PlanOutcome) {
	tx.endPromise(outcome)
	tx.plan = nil
}

// endPromise reports the outcome of all remaining promises.
func (tx *transaction) endPromise(outcome PlanOutcome) {
	if tx.plan == nil {
		return
	}
	for range tx.plan.promised {
		tx.observe(func(o DecisionObserver) { o.PlanEnded(outcome) })
	}
	tx.plan.promised = nil
}
