package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/kubelet"

	"github.com/tandem-k8s/tandem/coordination/bounded"
	"github.com/tandem-k8s/tandem/coordination/history"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/ledger"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Prefer chooses devices for a GetPreferredAllocation and plans for the half of the request that has not been
// asked. The reason says what was known and what came of it. Where the ledger has changed since the kubelet
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

// errMoved means that what was read is of an older ledger.
var errMoved = errors.New("the ledger has changed meanwhile")

// choose answers a question by what was seen for it, and keeps the answer as the plan.
func (d *deciding) choose(
	q asking.Question, asked time.Time, now seen,
) (ids []string, reason string, err error) {
	l := d.ledger
	d.version++
	d.at, d.progress, d.cpus = asked, d.reached(now.checkpoint, now.checkpointErr), now.cpus
	evidence := d.evidence(now.view, now.answer)
	if now.checkpointErr == nil {
		evidence.Recorded = &now.checkpoint
	}
	d.giveUp(evidence, false)
	for _, a := range l.Allocations() {
		if now.gone[a.ID] {
			evidence.Forget(a)
		}
	}
	r := l.Resource(q.Resource)
	var made *placement.Choice
	var holder *ledger.Allocation
	var known asking.Knowledge
	if p := d.foreseen(q, now); p != nil {
		made, holder, known = p.choice, p.holder, p.knowledge() // nothing has come in between
	} else {
		holder, known = evidence.Asks(q)
	}
	d.view = now.view
	if d.progress == asking.Complete && !d.given.refused {
		l.Reconcile(now.checkpoint, now.view)
	}
	request, remark := d.request(r, d.usable(q, now, holder), q, holder, known.Asker)
	known.Remark = remark
	if made == nil {
		choice, err := placement.Choose(d.tree, request)
		if err != nil {
			return nil, "", fmt.Errorf("choose %d of %s: %w", q.Size, q.Resource, err)
		}
		made = &choice
	}
	p := d.newPlan(made, r, q, holder, known)
	d.follow(p, q.Resource)
	d.words.Asked(known.Source)
	d.asked = &history.Decision{
		At: asked, Took: d.now().Sub(asked), Container: asking.Likely(known.Asker.To(), holder), Asked: true,
		Known:    known.For(r.Kind),
		Resource: q.Resource, Size: q.Size, Available: len(q.Available), MustInclude: q.MustInclude,
		Tree: d.tree, Request: request, Choice: *made, Chosen: p.devices[q.Resource],
		Planned: p.others(q.Resource),
	}
	return p.devices[q.Resource], known.For(r.Kind) + "; " + made.Reason, nil
}

// evidence is what tells who asks or is given devices: what is known already, a look and what the pods want.
func (d *deciding) evidence(view *kubelet.View, answer *intent.Answer) *asking.Evidence {
	return &asking.Evidence{
		Ledger: d.ledger, Looked: &d.looked, Progress: d.progress,
		Newest: kubelet.Devices{d.given.newest.Resource: d.given.newest.IDs}, Foreseen: d.given.foreseen,
		Recent: d.recent(d.at), View: view, Answer: answer,
	}
}

// foreseen is the plan, where it is kept for just this question, which then needed no look.
func (d *deciding) foreseen(q asking.Question, now seen) *plan {
	if now.view != nil || now.answer != nil || d.progress != asking.Open || !d.foresees(q, d.at) {
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
	r := s.ledger.Resource(q.Resource)
	switch {
	case r == nil:
		return fmt.Errorf("choose %s: no plugin has announced it", q.Resource)
	case len(q.Available) > len(r.Devices) || len(q.MustInclude) > len(r.Devices):
		return fmt.Errorf("choose among %d devices of %s: only %d were announced",
			len(q.Available), q.Resource, len(r.Devices))
	}
	return nil
}
