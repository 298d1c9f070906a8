package admission

import (
	"maps"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/resources"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// planTTL is how long a plan stands that nobody claims. The kubelet asks for the second half of a container
// within milliseconds of the first; an admission that fails in between leaves its plan behind.
const planTTL = 2 * time.Second

// plan is our reservation for the halves of a request that have not been asked yet.
type plan struct {
	devices   map[string][]string // by resource, in the order of the pairs
	asked     string              // the resource of the question that it answers
	anew      bool                // nothing of that had to be taken over from an init container
	container asking.Container    // with what it was given already
	choice    *placement.Choice   // that all of it comes from
	predicted bool                // the NUMA nodes that it goes by are a guess
	after     int                 // sequence of the newest Allocate when it was made
	expires   time.Time

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

// knowledge is that of the question which led to the plan, for the other half of a container.
func (p *plan) knowledge(c *asking.Container) asking.Knowledge {
	if c.Asker != nil {
		return asking.Knowledge{Source: c.Asker.Source, Why: asking.SecondHalf, Asker: c.Asker}
	}
	return asking.Knowledge{Source: intent.PodResources, Why: asking.SecondHalf + " of " + c.Name()}
}

// foresees reports whether a question is for all that the plan is still kept for, directly after an Allocate
// of the rest of it. What it was made from is known to be right: PodResources was read, and one pod remains.
func (s *state) foresees(q asking.Question, asked time.Time) bool {
	p, c := s.plan.live(asked), s.given.container
	if p == nil || p.choice == nil || c == nil || !s.given.foreseen || p.after != s.sequence-1 ||
		!s.recent(asked) || !c.Looked || !c.Identified() {
		return false
	}
	planned := p.devices[q.Resource]
	lacking := func(id string) bool { return !slices.Contains(q.Available, id) }
	held := func(id string) bool { return !s.books().isFree(q.Resource, id) }
	return len(p.devices) == 1 && len(planned) == q.Size && len(q.MustInclude) == 0 &&
		!slices.ContainsFunc(planned, lacking) && !slices.ContainsFunc(q.Available, held)
}

// newPlan keeps a choice: the answer to the question, and what is left for the other resources of the
// request.
func (d *deciding) newPlan(
	choice *placement.Choice, r *resources.Resource, q asking.Question, container asking.Container,
) *plan {
	p := &plan{
		devices:   map[string][]string{},
		asked:     q.Resource,
		anew:      len(q.MustInclude) == 0,
		container: container,
		choice:    choice,
		predicted: d.policy == "" && len(d.resources.Nodes(q.Resource, q.Available)) == 0,
		after:     d.sequence,
		expires:   d.now().Add(planTTL),
	}
	offered := map[string]bool{}
	for _, id := range slices.Concat(q.Available, q.MustInclude) {
		offered[id] = true
	}
	for _, chosen := range slices.Concat(choice.GPUs, choice.VFs) {
		name := r.Name
		if !offered[chosen.ID] {
			name = d.resources.OfDevice(chosen.ID, r.Name)
		}
		if name != "" {
			p.devices[name] = append(p.devices[name], chosen.ID)
		}
	}
	maps.DeleteFunc(p.devices, func(name string, ids []string) bool {
		return name != r.Name && !slices.ContainsFunc(ids, func(id string) bool { return !container.Has(name, id) })
	})
	return p
}

// follow makes a plan the one that stands, and counts what became of the one before.
func (d *deciding) follow(next *plan, name string) {
	d.expirePlan()
	before := d.plan
	if before != nil && before.container.ID == next.container.ID && before.promised[name] != nil {
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
