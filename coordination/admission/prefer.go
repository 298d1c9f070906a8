package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/bounded"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/history"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Prefer chooses devices for a GetPreferredAllocation and plans for the half of the request that has not been
// asked. The reason says what was known and what came of it. Where something was allocated since the kubelet
// was read it is read again, and where ctx is done nothing is changed: the asker has answered without us, and
// the kubelet goes by that.
func (c *Coordinator) Prefer(
	ctx context.Context, resource string, available, mustInclude []string, size int,
) (ids []string, reason string, err error) {
	return c.prefer(ctx, asking.Question{
		Resource: resource, Available: available, MustInclude: mustInclude, Size: size,
	})
}

func (c *Coordinator) prefer(
	ctx context.Context, q asking.Question,
) (ids []string, reason string, err error) {
	if err := c.answerable(ctx, q); err != nil {
		return nil, "", err
	}
	asked := c.now() // a look may have to wait for the kubelet's limiter
	for {
		before := c.current()
		now := c.read(ctx, before, asked, q)
		err = c.decide(func(d *deciding) (err error) {
			switch {
			case ctx.Err() != nil:
				return fmt.Errorf("choose %d of %s: nobody waits any more: %w", q.Size, q.Resource, ctx.Err())
			case d.version != before.version:
				return errMoved
			}
			ids, reason, err = d.choose(q, asked, now)
			return err
		})
		if !errors.Is(err, errMoved) {
			return ids, reason, err
		}
	}
}

// errMoved means that what was read is older than the state.
var errMoved = errors.New("something was asked or allocated meanwhile")

// choose answers a question by what was seen for it, and keeps the answer as the plan.
func (d *deciding) choose(
	q asking.Question, asked time.Time, now seen,
) (ids []string, reason string, err error) {
	d.version++
	d.at, d.cpus, d.policy, d.view = asked, now.cpus, now.policy, now.list()
	if errors.Is(now.checkpointErr, bounded.ErrHangs) {
		d.warn("judge who asks without the kubelet's checkpoint", "error", now.checkpointErr)
	}
	r := d.resources[q.Resource]
	var made *placement.Choice
	var container asking.Container
	var known asking.Knowledge
	if p := d.foreseen(q, now); p != nil {
		made, container, known = p.choice, *d.given.container, p.knowledge(d.given.container)
	} else {
		container, known = d.whoAsks(q, now)
	}
	if container.ID == 0 {
		d.ids++
		container.ID = d.ids
	}
	request, remark := d.request(r, d.usable(q, &container), q, &container)
	known.Remark = remark
	if made == nil {
		choice, err := placement.Choose(d.tree, request)
		if err != nil {
			return nil, "", fmt.Errorf("choose %d of %s: %w", q.Size, q.Resource, err)
		}
		made = &choice
	}
	p := d.newPlan(made, r, q, container)
	d.follow(p, q.Resource)
	d.words.Asked(known.Source)
	d.asked = &history.Decision{
		At: asked, Took: d.now().Sub(asked), Container: container.Likely(), Asked: true,
		Known:    known.For(r.Kind),
		Resource: q.Resource, Size: q.Size, Available: len(q.Available), MustInclude: q.MustInclude,
		Tree: d.tree, Request: request, Choice: *made, Chosen: p.devices[q.Resource],
		Planned: p.others(q.Resource),
	}
	return p.devices[q.Resource], known.For(r.Kind) + "; " + made.Reason, nil
}

// whoAsks finds who holds what, and then which container asks.
func (d *deciding) whoAsks(q asking.Question, now seen) (asking.Container, asking.Knowledge) {
	e := d.evidence(now)
	if e.GivenUp() {
		d.giveUp(e)
	}
	if !e.Recorded && e.View != nil { // a look shows what containers before the newest have
		d.allocates = slices.DeleteFunc(slices.Clone(d.allocates), func(a holders.Allocate) bool {
			return e.Newest == nil || !device.SameSet(a.IDs, e.Newest.Devices[a.Resource])
		})
	}
	found := holders.Look(now.sources(d.state, q))
	d.allocates, d.known = found.Allocates, found.Known
	d.hold(found.Holders)
	e.Holders = found.Holders
	container, known := e.Asks(q)
	d.seen = d.seen.With(now.list())
	return container, known
}

// evidence is what tells who asks or is given devices: what is known already, a look and what the pods want.
func (d *deciding) evidence(now seen) *asking.Evidence {
	return &asking.Evidence{
		Resources: d.resources, Holders: d.found, Newest: d.given.container.In(now.list()),
		Recorded: now.checkpointErr == nil && now.checkpoint.Identity != kubelet.Identity{},
		Progress: d.given.progress(now.checkpoint, now.checkpointErr), Recent: d.recent(d.at),
		View: now.list(), Answer: now.answer, Seen: d.seen,
	}
}

// giveUp takes note that nothing follows for the container of the newest Allocate: the kubelet has failed its
// pod meanwhile, and frees what it has.
func (d *deciding) giveUp(e *asking.Evidence) {
	d.release(d.given.container)
	d.endPlan(Dropped)
	d.given.refused = true
	e.Progress, e.Newest = asking.Complete, nil
}

// release forgets what the kubelet gave a container that it fails.
func (d *deciding) release(c *asking.Container) {
	if c == nil {
		return
	}
	d.allocates = slices.DeleteFunc(slices.Clone(d.allocates), func(a holders.Allocate) bool {
		return device.SameSet(a.IDs, c.Devices[a.Resource])
	})
	d.hold(slices.DeleteFunc(slices.Clone(d.found), func(h holders.Holder) bool {
		return h.Open && c.HasAny(h.Devices)
	}))
}

// foreseen is the plan, where it is kept for just this question, which then needed no look.
func (d *deciding) foreseen(q asking.Question, now seen) *plan {
	open := d.given.progress(now.checkpoint, now.checkpointErr) == asking.Open
	if now.view != nil || now.answer != nil || !open || !d.foresees(q, d.at) {
		return nil
	}
	return d.plan
}

// answerable waits until a question can be answered, or says why it cannot, before the kubelet is bothered
// with it. Resources never go away, so that what is answerable stays so.
func (c *Coordinator) answerable(ctx context.Context, q asking.Question) error {
	announced, err := c.lacking(q)
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, bounded.Announced)
	defer cancel()
	for err != nil {
		select {
		case <-announced:
			announced, err = c.lacking(q)
		case <-ctx.Done():
			return err
		}
	}
	return nil
}

// lacking says what has not been announced that a question is about, and then returns a channel that the next
// announcement closes.
func (c *Coordinator) lacking(q asking.Question) (announced <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err = c.current().lacking(q); err == nil {
		return nil, nil
	}
	return c.nextAnnounced(), err
}

// lacking says what has not been announced that a question is about.
func (s *state) lacking(q asking.Question) error {
	r := s.resources[q.Resource]
	switch {
	case r == nil:
		return fmt.Errorf("choose %s: no plugin has announced it", q.Resource)
	case len(q.Available) > len(r.Devices) || len(q.MustInclude) > len(r.Devices):
		return fmt.Errorf("choose among %d devices of %s: only %d were announced",
			len(q.Available), q.Resource, len(r.Devices))
	}
	return nil
}
