package admission

import (
	"context"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/bounded"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// grant is an Allocate, with whom it is for.
type grant struct {
	name      string
	ids       []string
	progress  asking.Progress   // of the container of the Allocate before
	before    *asking.Container // that one; nil for none
	plan      *plan             // that it fulfils, nil for none
	planned   []string          // the IDs in the order of that plan
	container *asking.Container
}

// sure is whether all that the container has is one container's: the kubelet's checkpoint shows that it is
// not done with it, or PodResources has shown what it had when it was asked for the rest.
func (g grant) sure() bool { return g.progress == asking.Open || g.shown() }

// shown is whether PodResources has shown what the container had when it was asked for the rest.
func (g grant) shown() bool { return g.plan != nil && g.plan.container.Shown }

// guessed is whether the kubelet can have failed the pod of the container's first half, and nothing tells.
func (g grant) guessed() bool {
	return g.container.Asker == nil && g.container.Guessed && !g.shown()
}

// Taken is the answer to an Allocate.
type Taken struct {
	Order     []string           // the devices as the container should list them
	Container *kubelet.Container // that they are for; nil where that is not known
	Refusal   string             // why the container must not have them, in one sentence; "" where it may
}

// Allocated takes note of what the kubelet took. Once ctx is done nothing is refused: the plugin has let the
// container have its devices. The error is errClosed: nobody has taken note.
func (c *Coordinator) Allocated(ctx context.Context, name string, ids []string) (taken Taken, err error) {
	defer c.touched()
	var now seen
	now.checkpoint, now.checkpointErr = c.Recorded()
	looking, cancel := context.WithTimeout(ctx, bounded.Look) // for all looks together
	defer cancel()
	double := c.conflict(looking, name, ids)
	gone := c.unplanned(looking, name, ids, &now)
	err = c.decide(func(d *deciding) error {
		refusable := ctx.Err() == nil
		if double.said != "" && !refusable {
			d.error("a container has a device that it should have been refused: the coordinator was late",
				"reason", double.full())
		} else if double.said != "" {
			if n := d.given.container; d.evidence(now).Progress == asking.Open && n.Lacks(name) {
				d.release(n) // it is the one that is refused
			}
			d.refuse(nil, name, ids, RefusedDouble, double)
			taken.Refusal = double.said
			return nil
		}
		g := d.take(now, name, ids, gone)
		if apart := d.misaligned(g); apart.said != "" && refusable {
			d.release(g.container)
			d.refuse(g.container, name, ids, RefusedAlignment, apart)
			taken.Refusal = apart.said
			return nil
		}
		taken.Order, taken.Container = d.keep(g), g.container.Likely()
		return nil
	})
	return taken, err
}

// take takes note of an Allocate, for the container that it most likely is for. Gone is whether the kubelet
// tells that the container of the plan is.
func (d *deciding) take(now seen, name string, ids []string, gone bool) grant {
	e := d.evidence(now)
	e.View, e.Partial, e.Recent = now.view, true, d.recent(d.now())
	if now.answer != nil {
		found := holders.Look(now.sources(d.state, asking.Question{}))
		e.Holders, d.known = found.Holders, found.Known
	}
	if gone || now.view == nil && e.GivenUp() { // a view shows no more than some of the pods
		d.giveUp(e)
	}
	g := grant{name: name, ids: ids, progress: e.Progress, before: e.Newest}
	d.fulfil(name, ids)
	if p := d.livePlan(); p != nil && d.sequence > p.after && e.Progress == asking.Complete {
		d.endPlan(Dropped) // the rest of it was not wanted
	}
	anew := false
	if p := d.livePlan(); p != nil {
		anew = p.asked == name && p.anew
		if p.keeps(name, ids) {
			g.plan, g.planned = p, p.devices[name]
		}
	}
	g.container = d.containerOf(g, e)
	if p := d.livePlan(); p != nil {
		delete(p.devices, name) // fulfilled, or overruled
	}
	d.version++
	d.sequence++
	d.remembered(g.container, holders.Allocate{
		Resource: name, IDs: slices.Clone(ids), Anew: anew, Recorded: now.checkpoint.Identity,
	})
	d.given.at, d.given.foreseen, d.given.refused = d.now(), g.plan != nil, false
	d.given.recorded = now.checkpoint.Identity
	return g
}

// containerOf is the container that devices are given to: that of the plan they fulfil; the one that a source
// of intent found; that of the Allocate before, if the kubelet is not done with it; else a new one.
func (d *deciding) containerOf(g grant, e *asking.Evidence) *asking.Container {
	c := asking.Container{Unasked: true}
	n := d.given.container
	switch found := e.Receives(asking.Question{Resource: g.name, Size: len(g.ids)}); {
	case g.plan != nil:
		if c = g.plan.container; n != nil && n.ID == c.ID {
			c.Devices = n.Devices // the other half was given since
		}
	case found != nil:
		if c = e.ContainerOf(found, g.name); c.ID == 0 {
			c.Unasked = true
		}
	case n == nil || e.Newest == nil || n.Owner != nil:
	case e.Progress == asking.Open && n.Lacks(g.name) && d.resources.SameNodes(n.Devices, g.name, g.ids):
		c = *n
		c.Guessed = c.Guessed || c.Asker == nil && !c.Looked
	case e.Progress == asking.Unknown && e.Recent && n.HasAny(kubelet.Devices{g.name: g.ids}):
		c = *n // an app container takes over from its init container
	}
	if c.ID == 0 {
		d.ids++
		c.ID = d.ids
	}
	c = c.Given(g.name, slices.Clone(g.ids))
	return &c
}

// How many Allocates are remembered, and how many holders between two questions. There is one Allocate for
// each resource, but where the kubelet's checkpoint cannot be read.
const (
	maxAllocates = 256
	maxHolders   = 4096
)

// remembered notes an Allocate to a container until the kubelet's records tell of it. The kubelet writes its
// checkpoint when a container has all its devices, and a container is given those of a resource once: what
// was remembered of a checkpoint before, or of the same resource, is over; and so is all of another
// container, which the kubelet has failed if it goes on without having written.
func (d *deciding) remembered(c *asking.Container, a holders.Allocate) {
	if to := c.Asker; to != nil && to.Exact {
		a.UID, a.Pod, a.Name = to.UID, to.Pod, to.Name
	}
	before := d.given.container
	failed := before != nil && before.ID != c.ID && d.given.recorded == a.Recorded
	over := func(other holders.Allocate) bool {
		return a.Recorded != kubelet.Identity{} && (other.Recorded != a.Recorded || other.Resource == a.Resource ||
			failed && device.SameSet(other.IDs, before.Devices[other.Resource]))
	}
	all := append(slices.DeleteFunc(slices.Clone(d.allocates), over), a)
	d.allocates = all[max(0, len(all)-maxAllocates):]
	h := holders.Holder{UID: a.UID, Pod: a.Pod, Name: a.Name, Devices: c.Devices, Open: true}
	if name := c.Likely(); name != nil {
		h.Pod, h.Name = name.Pod, name.Name
	} else if c.Identified() {
		h.Pod = c.Pods[0]
	}
	found := slices.DeleteFunc(slices.Clone(d.found), func(h holders.Holder) bool {
		return h.Open && before != nil && before.ID == c.ID && before.HasAny(h.Devices)
	})
	found = append(found, h)
	d.hold(found[max(0, len(found)-maxHolders):])
}

// keep tells everybody who is to know of a grant, and returns its devices in the order in which the container
// should list them.
func (d *deciding) keep(g grant) (order []string) {
	before := g.before
	if g.plan != nil || before == nil || !before.Lacks(g.name) ||
		!d.resources.SameNodes(before.Devices, g.name, g.ids) {
		before = nil
	}
	order = d.inPairOrder(g, before)
	d.handed = &handover{d.now(), g.container.Likely(), g.name, order, ""}
	if d.given.devices == nil || d.given.container.ID != g.container.ID || len(d.given.devices[g.name]) > 0 {
		d.given.devices, d.given.files, d.given.vfs = kubelet.Devices{}, nil, nil
	}
	d.given.container, d.given.before, d.given.devices[g.name] = g.container, before, order
	if r := d.resources[g.name]; r != nil && r.Kind == device.GPU {
		d.paired = len(d.given.files) > 0
	}
	d.reportGranted(g)
	return order
}

// refuse takes note that the kubelet is about to fail a container, and why: nothing follows for it. C is nil
// for one that is not known.
func (d *deciding) refuse(c *asking.Container, name string, ids []string, outcome Outcome, why refusal) {
	d.endPlan(Dropped)
	d.given.refused = true
	var container *kubelet.Container
	if c != nil {
		container = c.Likely()
	}
	d.error("refuse", "resource", name, "devices", ids, "outcome", outcome, "reason", why.said, "held_by",
		why.owners)
	d.handed = &handover{d.now(), container, name, ids, why.full()}
	d.report(Verdict{Resource: name, Outcome: outcome, Refusal: why.said}, c)
}

// unplanned reads what the pods of the node ask for, where no plan says who is being given devices: the
// kubelet did not ask, or did not take what it was told. A plan says so just after its question, or the
// Allocate before: else the kubelet can have failed the container that it was made for, and gone is whether
// the kubelet tells that it has. PodResources List is never read here.
func (c *Coordinator) unplanned(ctx context.Context, name string, ids []string, to *seen) (gone bool) {
	s, now := c.current(), c.now()
	p := s.plan.live(now)
	kept := p.keeps(name, ids)
	if kept && (p.asked == name || s.recent(now)) {
		return false
	}
	to.answer = c.askedFor(ctx)
	if kept && (to.answer == nil || to.answer.Source == intent.APIServer) {
		gone = c.isGone(ctx, p.container.Pods)
	}
	if to.answer != nil && to.answer.Source == intent.APIServer {
		to.view, to.single = c.waiting(ctx, to.answer.Pods, name, len(ids))
	}
	return gone
}

// isGone reports whether the kubelet tells that it has none of some pods.
func (c *Coordinator) isGone(ctx context.Context, pods []kubelet.Pod) bool {
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
func (c *Coordinator) waiting(
	ctx context.Context, pods []intent.Pod, name string, count int,
) (view *kubelet.View, asked []kubelet.Pod) {
	for _, pod := range pods {
		wants := func(c intent.Container) bool { return c.Requests[name] == count }
		if !pod.Started && slices.ContainsFunc(pod.Containers, wants) {
			asked = append(asked, pod.Pod)
		}
	}
	if len(asked) > maxWaiting {
		return nil, nil
	}
	view, told := c.single(ctx, asked)
	if len(told) < len(asked) {
		return nil, nil
	}
	if view == nil {
		view, told = &kubelet.View{}, []kubelet.Pod{}
	}
	return view, told
}
