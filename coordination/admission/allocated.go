package admission

import (
	"context"
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/asking"

	"github.com/tandem-k8s/tandem/coordination/bounded"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/ledger"
)

// grant is an Allocate as it becomes part of the ledger.
type grant struct {
	name     string
	ids      []string
	progress asking.Progress    // of the container of the Allocate before
	before   *ledger.Allocation // the newest one until then
	plan     *plan              // that it fulfils, nil for none
	planned  []string           // the IDs in the order of that plan
	holder   *ledger.Allocation
}

// sure is whether all of the holder is one container's: the kubelet's checkpoint shows that it is not done
// with it, or PodResources has shown what it had when it was asked for the rest.
func (g grant) sure() bool { return g.progress == asking.Open || g.shown() }

// shown is whether PodResources has shown what the holder had when it was asked for the rest.
func (g grant) shown() bool { return g.plan != nil && g.plan.shown }

// guessed is whether the kubelet can have failed the pod of the holder's first half, and nothing tells.
func (g grant) guessed() bool {
	return g.holder.Recipient == nil && g.holder.Guessed && !g.shown()
}

// Taken is the answer to an Allocate.
type Taken struct {
	Order     []string           // the devices as the container should list them
	Container *kubelet.Container // that they are for; nil where that is not known
	Refusal   string             // why the container must not have them, in one sentence; "" where it may
}

// Allocated records what the kubelet took. Once ctx is done nothing is refused: the plugin has let the
// container have its devices. The error is errClosed: what the kubelet took is not in the ledger.
func (c *Coordinator) Allocated(ctx context.Context, name string, ids []string) (taken Taken, err error) {
	defer c.touched()
	checkpoint, unread := c.Recorded()
	looking, cancel := context.WithTimeout(ctx, bounded.Look) // for all looks together
	defer cancel()
	double := c.conflict(looking, name, ids)
	answer, shown, gone := c.unplanned(looking, name, ids)
	err = c.decide(func(d *deciding) error {
		refusable := ctx.Err() == nil
		if double.said != "" && !refusable {
			d.error("a container has a device that it should have been refused: the coordinator was late",
				"reason", double.full())
		} else if double.said != "" {
			d.refuse(nil, name, ids, RefusedDouble, double)
			taken.Refusal = double.said
			return nil
		}
		if err := d.ledger.Room(name, len(ids)); err != nil {
			d.error("forget an allocation", "resource", name, "devices", ids, "error", err)
			taken.Order = slices.Sorted(slices.Values(ids))
			return nil
		}
		reached := d.reached(checkpoint, unread)
		d.given.newest = allocate{name, slices.Clone(ids), checkpoint.Holders(name, ids), unread == nil}
		g := d.take(reached, name, ids, answer, shown, gone)
		if apart := d.misaligned(g); apart.said != "" && refusable {
			d.takeBack(g, apart)
			taken.Refusal = apart.said
			return nil
		}
		taken.Order, taken.Container = d.keep(g), asking.Likely(g.holder.Recipient, g.holder)
		return nil
	})
	return taken, err
}

// take puts devices into the ledger, for the container that they most likely are for.
func (d *deciding) take(
	reached asking.Progress, name string, ids []string, answer *intent.Answer, shown *kubelet.View,
	gone *ledger.Allocation,
) grant {
	l := d.ledger
	d.progress = reached
	evidence := d.evidence(shown, answer)
	if shown == nil || gone != nil { // else it shows no more than some of the pods
		d.giveUp(evidence, gone != nil && d.plan != nil && d.plan.holder.ID == gone.ID)
	}
	if answer != nil {
		evidence.Bury()
	}
	g := grant{name: name, ids: ids, progress: d.progress, before: l.Newest()}
	d.fulfil(name, ids)
	if p := d.livePlan(); p != nil && l.Sequence() > p.after && d.progress == asking.Complete {
		d.endPlan(Dropped) // the rest of it was not wanted
	}
	if p := d.livePlan(); p.keeps(name, ids) {
		g.plan, g.planned = p, p.devices[name]
	}
	found := evidence.Receives(asking.Question{Resource: name, Size: len(ids)}, g.before)
	g.holder = d.holderFor(g, evidence, found)
	if g.plan != nil {
		found = g.plan.asker
	}
	if p := d.livePlan(); p != nil {
		delete(p.devices, name) // fulfilled, or overruled
	}
	d.version++
	d.given.at, d.given.foreseen, d.given.refused = d.now(), g.plan != nil, false
	d.given.to = found.To()
	l.Allocate(g.holder, name, ids, d.given.to)
	return g
}

// holderFor finds the allocation that newly given devices belong to: that of the plan they fulfil; that of
// the container which a source of intent found; the newest one, if they were in it (an app container takes
// over from its init container); else a new one. What two new ones are of the same container, because the
// kubelet asked for neither half, the next look at PodResources shows.
func (d *deciding) holderFor(
	g grant, evidence *asking.Evidence, found *asking.Asker,
) *ledger.Allocation {
	if g.plan != nil {
		return g.plan.holder
	}
	newest := g.before
	in := func(id string) bool { return d.ledger.Holder(g.name, id) == newest }
	if newest != nil && (d.looked.IsApp(newest) || !slices.ContainsFunc(g.ids, in)) {
		newest = nil
	}
	if found != nil {
		held := evidence.HolderOf(found, newest)
		if held.Devices == nil {
			held.Unasked, held.Candidates = true, found.Pods
		}
		return held
	}
	if newest != nil {
		return newest
	}
	return &ledger.Allocation{Unasked: true}
}

// takeBack undoes take: the container is refused.
func (d *deciding) takeBack(g grant, why refusal) {
	for _, id := range g.ids {
		d.ledger.Release(g.name, id)
	}
	d.refuse(g.holder, g.name, g.ids, RefusedAlignment, why)
}

// keep tells everybody who is to know of a grant, and returns its devices in the order in which the container
// should list them.
func (d *deciding) keep(g grant) (order []string) {
	l, before := d.ledger, g.before
	if g.plan != nil || before == nil || !before.Lacks(g.name) || !l.SameNodes(before, g.name, g.ids) {
		before = nil
	}
	order = d.inPairOrder(g, before)
	d.handed = &handover{d.now(), asking.Likely(g.holder.Recipient, g.holder), g.name, order, ""}
	if !d.goesOn(g.progress, g.holder, g.name) {
		d.given.devices, d.given.files, d.given.vfs = kubelet.Devices{}, nil, nil
	}
	d.given.holder, d.given.before, d.given.devices[g.name] = g.holder, before, order
	if r := l.Resource(g.name); r != nil && r.Kind == device.GPU {
		d.paired = len(d.given.files) > 0
	}
	d.reportGranted(g)
	return order
}

// refuse takes note that the kubelet is about to fail a container, and why: nothing follows for it. Of one
// that the ledger does not know a is nil.
func (d *deciding) refuse(a *ledger.Allocation, name string, ids []string, outcome Outcome, why refusal) {
	d.endPlan(Dropped)
	d.given.refused = true
	var container *kubelet.Container
	if a != nil {
		container = asking.Likely(a.Recipient, a)
	}
	d.error("refuse", "resource", name, "devices", ids, "outcome", outcome, "reason", why.said, "held_by",
		why.owners)
	d.handed = &handover{d.now(), container, name, ids, why.full()}
	d.report(Verdict{Resource: name, Outcome: outcome, Refusal: why.said}, a)
}

// unplanned is what the pods of the node ask for, where no plan says who is being given devices: the kubelet
// did not ask, or did not take what it was told. A plan says so just after its question, or the Allocate
// before: else the kubelet can have failed the container that it was made for, and gone is its allocation
// where the kubelet tells that it has. PodResources List is never read here.
func (c *Coordinator) unplanned(
	ctx context.Context, name string, ids []string,
) (answer *intent.Answer, shown *kubelet.View, gone *ledger.Allocation) {
	s, now := c.current(), c.now()
	p := s.plan.live(now)
	kept := p.keeps(name, ids)
	if kept && (p.asked == name || s.recent(now)) {
		return nil, nil, nil
	}
	answer = c.askedFor(ctx)
	if kept && (answer == nil || answer.Source == intent.APIServer) && c.isGone(ctx, p.holder) {
		gone = p.holder
	}
	if answer != nil && answer.Source == intent.APIServer {
		shown = c.waiting(ctx, answer.Pods, name, len(ids))
	}
	return answer, shown, gone
}

// isGone reports whether the kubelet tells that it has none of the pods that an allocation can be of.
func (c *Coordinator) isGone(ctx context.Context, a *ledger.Allocation) bool {
	pods := a.Pods()
	for _, pod := range pods {
		if view, err := c.Get(ctx, pod); err != nil || len(view.Pods) > 0 {
			return false
		}
	}
	return len(pods) > 0
}

// maxWaiting bounds the pods that are asked about one by one.
const maxWaiting = 4

// waiting shows those of the pods that wait for so many devices, by the API server, which the kubelet knows:
// it takes a pod in just before its admission, and the API server has it long before. Nil where that cannot
// be told.
func (c *Coordinator) waiting(ctx context.Context, pods []intent.Pod, name string, count int) *kubelet.View {
	all := &kubelet.View{Containers: map[kubelet.Container]kubelet.Devices{}}
	asked := 0
	for _, pod := range pods {
		wants := func(c intent.Container) bool { return c.Requests[name] == count }
		if pod.Started || !slices.ContainsFunc(pod.Containers, wants) {
			continue
		}
		if asked++; asked > maxWaiting {
			return nil
		}
		view, err := c.Get(ctx, pod.Pod)
		if err != nil {
			return nil
		}
		all.Pods = append(all.Pods, view.Pods...)
		maps.Copy(all.Containers, view.Containers)
	}
	return all
}
