package admission

import (
	"maps"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/asking"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/ledger"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// planTTL is how long a plan stands that nobody claims. The kubelet asks for the second half of a container
// within milliseconds of the first; an admission that fails in between leaves its plan behind.
const planTTL = 2 * time.Second

// plan is our reservation for the halves of a request that have not been asked yet.
type plan struct {
	devices map[string][]string // by resource, in the order of the pairs
	asked   string              // the resource of the question that it answers
	holder  *ledger.Allocation  // of what the container was given already; to be filled by its next Allocate
	shown   bool                // PodResources has shown it with that
	asker   *asking.Asker       // the container, nil where no source of intent told
	choice  *placement.Choice   // that all of it comes from; nil for one that was read back
	after   int                 // sequence of the newest Allocate when it was made
	expires time.Time

	// what the container's first question left for the others, until it is known what became of it: the plan of
	// its next question replaces the devices, and says the same
	promised map[string][]string // by resource
	until    time.Time
}

// live returns the plan unless it has expired.
func (p *plan) live(now time.Time) *plan {
	if p == nil || !now.Before(p.expires) {
		return nil
	}
	return p
}

// livePlan is the plan unless it has expired.
func (d *deciding) livePlan() *plan { return d.plan.live(d.now()) }

// others are the planned devices of all resources but one.
func (p *plan) others(name string) map[string][]string {
	others := maps.Clone(p.devices)
	delete(others, name)
	return others
}

// keeps reports whether devices are those that a plan keeps of a resource.
func (p *plan) keeps(name string, ids []string) bool {
	return p != nil && device.SameSet(p.devices[name], ids)
}

// knowledge is that of the question which led to the plan.
func (p *plan) knowledge() asking.Knowledge {
	if p.asker != nil {
		return asking.Knowledge{Source: p.asker.Source, Why: p.asker.Half(p.holder), Asker: p.asker}
	}
	return asking.Knowledge{Source: intent.PodResources, Why: asking.SecondHalf + " of " + p.holder.OwnerName()}
}

// foresees reports whether a question is for all that the plan is still kept for, directly after an Allocate
// of the rest of it. What it was made from is known to be right: PodResources was read, and one pod remains.
func (s *state) foresees(q asking.Question, asked time.Time) bool {
	p := s.plan.live(asked)
	if p == nil || !s.given.foreseen || p.after != s.ledger.Sequence()-1 || !s.recent(asked) ||
		!p.holder.Looked || !p.holder.Identified() {
		return false
	}
	planned := p.devices[q.Resource]
	offered := func(id string) bool { return slices.Contains(q.Available, id) }
	held := func(id string) bool { return s.ledger.Holder(q.Resource, id) != nil }
	return len(p.devices) == 1 && len(planned) == q.Size && len(q.MustInclude) == 0 &&
		!slices.ContainsFunc(planned, func(id string) bool {
			return !offered(id)
		}) && !slices.ContainsFunc(q.Available, held)
}

// newPlan keeps a choice: the answer to the question, and what is left for the other resources of the
// request.
func (d *deciding) newPlan(
	choice *placement.Choice, r *ledger.Resource, q asking.Question, holder *ledger.Allocation,
	known asking.Knowledge,
) *plan {
	l := d.ledger
	p := &plan{
		devices: map[string][]string{},
		asked:   q.Resource,
		holder:  holder,
		shown:   known.Shown,
		asker:   known.Asker,
		choice:  choice,
		after:   l.Sequence(),
		expires: d.now().Add(planTTL),
	}
	offered := map[string]bool{}
	for _, id := range slices.Concat(q.Available, q.MustInclude) {
		offered[id] = true
	}
	for _, d := range slices.Concat(choice.GPUs, choice.VFs) {
		name := r.Name
		if !offered[d.ID] {
			name = l.ResourceOf(d.ID, r.Name)
		}
		if name != "" {
			p.devices[name] = append(p.devices[name], d.ID)
		}
	}
	maps.DeleteFunc(p.devices, func(name string, ids []string) bool {
		return name != r.Name && !slices.ContainsFunc(ids, func(id string) bool {
			return l.Holder(name, id) != holder
		})
	})
	return p
}

// follow makes a plan the one that stands, and counts what became of the one before.
func (d *deciding) follow(next *plan, name string) {
	d.expirePlan()
	if before := d.plan; before != nil && before.holder == next.holder && before.promised[name] != nil {
		next.promised, next.until = before.promised, before.until // the rest of the same container
		d.plan = next
		return
	}
	d.endPlan(Dropped)
	next.promised, next.until = next.others(name), next.expires
	if len(next.promised) > 0 {
		d.words.Planned(len(next.promised))
	}
	d.plan = next
}

// fulfil counts what became of the promise for a resource of which the kubelet gave devices.
func (d *deciding) fulfil(name string, ids []string) {
	d.expirePlan()
	if d.plan == nil || d.plan.promised[name] == nil {
		return
	}
	outcome := Overruled
	if device.SameSet(d.plan.promised[name], ids) {
		outcome = Kept
	}
	delete(d.plan.promised, name)
	d.words.PlanEnded(outcome)
}

// expirePlan counts a promise that nobody came for.
func (d *deciding) expirePlan() {
	if d.plan != nil && !d.now().Before(d.plan.until) {
		d.endPromise(Expired)
	}
}

// endPlan drops the plan.
func (d *deciding) endPlan(outcome PlanOutcome) {
	d.endPromise(outcome)
	d.plan = nil
}

func (d *deciding) endPromise(outcome PlanOutcome) {
	if d.plan == nil {
		return
	}
	for range d.plan.promised {
		d.words.PlanEnded(outcome)
	}
	d.plan.promised = nil
}
