package admission

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/bounded"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// record is the newest Allocate, and whom the kubelet's checkpoint showed with its devices at that time. As
// soon as it shows anybody else the kubelet is done with the container.
type record struct {
	resource string
	ids      []string
	holders  []string
	known    bool
	refused  bool // its container was refused after it: nothing follows
}

// grant is an Allocate as it becomes part of the ledger.
type grant struct {
	name       string
	ids        []string
	progress   progress    // of the container of the Allocate before
	before     *allocation // the newest one until then
	plan       *plan       // that it fulfils, nil for none
	planned    []string    // the IDs in the order of that plan
	allocation *allocation
}

// sure is whether the kubelet's checkpoint shows that all of the allocation is one container's.
func (g grant) sure() bool { return g.progress == open }

// Allocated records what the kubelet took and returns it in the order in which the container should list it;
// or it says why the container must not have it, in one sentence. Once ctx is done nothing is refused: the
// plugin has let the container have its devices. The error is errClosed: what the kubelet took is not in the
// ledger.
func (c *Coordinator) Allocated(
	ctx context.Context, name string, ids []string,
) (order []string, refusal string, err error) {
	defer c.touched()
	checkpoint, unread := c.Recorded()
	looking, cancel := context.WithTimeout(ctx, lookTimeout) // for all looks together
	defer cancel()
	double := c.conflict(looking, name, ids)
	answer, shown := c.unplanned(looking, name, ids)
	err = c.decide(func(d *deciding) error {
		refusable := ctx.Err() == nil
		if double.said != "" && !refusable {
			d.error("a container has a device that it should have been refused: the coordinator was late",
				"reason", double.full())
		} else if double.said != "" {
			d.refuse(nil, name, ids, RefusedDouble, double)
			refusal = double.said
			return nil
		}
		if err := d.ledger.room(name, len(ids)); err != nil {
			d.error("forget an allocation", "resource", name, "devices", ids, "error", err)
			order = slices.Sorted(slices.Values(ids))
			return nil
		}
		reached := d.reached(checkpoint, unread)
		d.last = record{
			resource: name, ids: slices.Clone(ids), holders: checkpoint.Holders(name, ids), known: unread == nil,
		}
		g := d.take(reached, name, ids, answer, shown)
		if apart := d.misaligned(g); apart.said != "" && refusable {
			d.takeBack(g, apart)
			refusal = apart.said
			return nil
		}
		order = d.keep(g)
		return nil
	})
	return order, refusal, err
}

// take puts devices into the ledger, for the container that they most likely are for.
func (d *deciding) take(
	reached progress, name string, ids []string, answer *intent.Answer, shown *kubelet.View,
) grant {
	l := d.ledger
	if answer != nil {
		l.bury(*answer)
	}
	g := grant{name: name, ids: ids, progress: reached, before: l.newest()}
	if p := l.livePlan(); p != nil && l.sequence > p.after && reached == complete {
		l.plan = nil // the rest of it was not wanted
	}
	if l.planned(name, ids) {
		g.plan = l.livePlan()
		g.planned = g.plan.devices[name]
	}
	var found *asker
	if answer != nil {
		d.progress = reached
		q := question{resource: name, size: len(ids)}
		found = l.identify(q, shown, *answer, l.candidates(q, shown, *answer), d.open(g.before))
	}
	d.promise.given(&d.words, name, ids, l.now())
	g.allocation = l.allocate(name, ids, found)
	return g
}

// takeBack undoes take: the container is refused.
func (d *deciding) takeBack(g grant, why refusal) {
	for _, id := range g.ids {
		d.ledger.release(g.name, id)
	}
	d.refuse(g.allocation, g.name, g.ids, RefusedAlignment, why)
}

// keep tells everybody who is to know of a grant, and returns its devices in the order in which the container
// should list them.
func (d *deciding) keep(g grant) (order []string) {
	l, before := d.ledger, g.before
	if g.plan != nil || before == nil || !before.lacks(g.name) || !l.sameNodes(before, g.name, g.ids) {
		before = nil
	}
	order = l.inPairOrder(d.tree, g.planned, g.allocation, before, g.name, g.ids)
	d.given = &handover{l.now(), knowledge{asker: g.allocation.asker}.container(g.allocation), g.name, order, ""}
	d.admit(g.progress, g.allocation, before, g.name, order)
	d.reportGranted(g)
	return order
}

// refuse takes note that the kubelet is about to fail a container, and why: nothing follows for it. Of one
// that the ledger does not know a is nil.
func (d *deciding) refuse(a *allocation, name string, ids []string, outcome Outcome, why refusal) {
	d.ledger.plan, d.last.refused = nil, true
	var container *kubelet.Container
	if a != nil {
		container = knowledge{asker: a.asker}.container(a)
	}
	d.error("refuse", "resource", name, "devices", ids, "outcome", outcome, "reason", why.said, "held_by",
		why.owners)
	d.given = &handover{d.ledger.now(), container, name, ids, why.full()}
	d.report(Verdict{Resource: name, Outcome: outcome, Refusal: why.said}, a)
}

// unplanned is what the pods of the node ask for, where no plan says who is being given devices: the kubelet
// did not ask, or did not take what it was told. PodResources List is never read here.
func (c *Coordinator) unplanned(
	ctx context.Context, name string, ids []string,
) (*intent.Answer, *kubelet.View) {
	if c.current().ledger.planned(name, ids) {
		return nil, nil
	}
	answer := c.askedFor(ctx)
	if answer == nil || answer.Source != intent.APIServer {
		return answer, nil
	}
	return answer, c.waiting(ctx, answer.Pods, name, len(ids))
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

// reached is the progress of the container of the newest Allocate. Once the kubelet is done with it the
// checkpoint tells its name.
func (d *deciding) reached(now kubelet.Checkpoint, err error) progress {
	if errors.Is(err, bounded.ErrHangs) {
		d.warn("judge who asks without the kubelet's checkpoint", "error", err)
	}
	reached, newest := d.last.progress(now, err), d.ledger.newest()
	if reached == complete && newest != nil && newest.container == "" {
		if uid, name := d.last.container(now); name != "" {
			newest.uid, newest.container = uid, name
		}
	}
	return reached
}

// container names the container that a checkpoint shows with the newest Allocate and did not before, "" for
// none.
func (r record) container(now kubelet.Checkpoint) (uid, name string) {
	for _, holder := range now.Holders(r.resource, r.ids) {
		if !slices.Contains(r.holders, holder) {
			uid, name, _ = strings.Cut(holder, "/")
			return uid, name
		}
	}
	return "", ""
}

// progress tells how far the kubelet is with the container of the newest Allocate.
func (r record) progress(now kubelet.Checkpoint, err error) progress {
	switch {
	case r.refused:
		return complete
	case !r.known || err != nil:
		return unknown
	case slices.Equal(r.holders, now.Holders(r.resource, r.ids)):
		return open
	default:
		return complete
	}
}
