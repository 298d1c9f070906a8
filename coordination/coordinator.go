package coordination

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/survive"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// lookTimeout bounds a look at PodResources. It is answered in about a millisecond; the kubelet's limiter can make it wait.
const lookTimeout = 50 * time.Millisecond

// coordinator answers for both plugins: it turns the kubelet's separate questions into one decision.
type coordinator struct {
	refresh   func(Announcement) error                                 // makes the newest tree as new as an announcement
	newest    func() *topology.Tree                                    // that was read
	look      func(context.Context) (kubelet.View, error)              // at all pods: not while devices are being allocated; nil: never
	get       func(context.Context, kubelet.Pod) (kubelet.View, error) // at one pod, at any time
	recorded  func() (kubelet.Checkpoint, error)
	granted   func() ([]kubelet.Granted, error)           // what the checkpoint says of containers
	pods      func(context.Context) (intent.Answer, bool) // what pods ask for; false where no source tells; nil: never
	alignment intent.Alignment                            // of pods that say nothing
	pairsDir  string
	log       *slog.Logger
	observer  Observer // nil for none
	touched   func()   // something has changed that a checkpoint holds; must not block

	allocatableCPUs func(context.Context) (topology.CPUSet, error) // that containers can have alone; nil: never
	nodeCPUs        func() map[int]topology.CPUSet                 // by NUMA node

	inFlight *inFlight
	endings  endings

	state   atomic.Pointer[state]
	writing sync.Mutex // of pairs files, one after the other

	mu        sync.Mutex // held while a decision is made, and never while something is read or written
	decisions decisions
	announced chan struct{} // closed on the next announcement; nil where nobody waits
	closed    bool          // another server goes on from the ledger as it is: nothing is decided here any more
}

// errClosed means that a server has ended.
var errClosed = errors.New("this server has ended; the other plugin serves next")

// close has nothing decided or recorded from now on.
func (c *coordinator) close() { c.locked(func() { c.closed = true }) }

// question is a GetPreferredAllocation as the kubelet asks it.
type question struct {
	resource    string
	available   []string // free in the kubelet's eyes, on the NUMA nodes it chose; the must-include ones among them
	mustInclude []string
	size        int
}

// announce takes a plugin's devices over.
func (c *coordinator) announce(name string, kind Kind, a Announcement) error {
	defer c.touched()
	if err := c.refresh(a); err != nil {
		c.log.Warn("keep the PCI tree as it was read before", "error", err)
	}
	c.inFlight.forget(name)
	err := c.decide(func(d *deciding) error {
		if err := d.ledger.room(name, 0); err != nil {
			return fmt.Errorf("announce %s: %w", name, err)
		}
		d.tree = c.newest() // another announcement may have made it newer than this one
		d.ledger.announce(name, kind, a)
		return nil
	})
	if err != nil {
		return err
	}
	c.locked(func() {
		if c.announced != nil {
			close(c.announced)
			c.announced = nil
		}
	})
	c.tidy()
	return nil
}

func (c *coordinator) leave(name string) {
	defer c.touched()
	_ = c.decide(func(d *deciding) error { d.ledger.leave(name); return nil }) // of a server that has ended nobody is told
}

// prefer chooses devices for a question and plans for the half of the request that has not been asked. The reason says
// what was known and what came of it. Where the ledger has changed since the kubelet was read it is read again, and
// where ctx is done nothing is changed: the asker has answered without us, and the kubelet goes by that.
func (c *coordinator) prefer(ctx context.Context, q question) (ids []string, reason string, err error) {
	if err := c.answerable(ctx, q); err != nil {
		return nil, "", err
	}
	asked := c.now() // a look may have to wait for the kubelet's limiter
	for {
		before := c.current()
		now := c.read(ctx, before, asked, q)
		err := c.decide(func(d *deciding) error {
			switch {
			case ctx.Err() != nil:
				return fmt.Errorf("choose %d of %s: nobody waits any more: %w", q.size, q.resource, ctx.Err())
			case d.ledger.version != before.ledger.version:
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

// read reads what a question needs.
func (c *coordinator) read(ctx context.Context, s *state, asked time.Time, q question) seen {
	if now, enough := c.glance(s, asked, q); enough {
		return now
	}
	return c.lookFor(ctx, s, q)
}

// choose answers a question by what was seen for it, and keeps the answer as the plan.
func (d *deciding) choose(q question, asked time.Time, now seen) (ids []string, reason string, err error) {
	l := d.ledger
	l.version++
	l.asked, l.progress, l.cpus = asked, d.reached(now.checkpoint, now.checkpointErr), now.cpus
	for a := range l.allocations() {
		if now.gone[a.id] {
			l.forget(a)
		}
	}
	r := l.resources[q.resource]
	holder, known := d.asking(q, now.view, now.answer)
	d.view = now.view
	if l.progress == complete && !d.last.refused {
		l.reconcile(now.checkpoint)
	}
	request, remark := l.request(r, d.usable(q, now.view, holder), q, holder, known.asker)
	known.Remark = remark
	choice, err := placement.Choose(d.tree, request)
	if err != nil {
		return nil, "", fmt.Errorf("choose %d of %s: %w", q.size, q.resource, err)
	}
	l.plan = l.newPlan(choice, r, q, holder, known.asker)
	d.promise.asked(&d.words, q.resource, l.plan, l.now())
	d.words.Asked(known.Source)
	d.asked = &decision{
		at: asked, took: l.now().Sub(asked), container: known.container(holder), question: q, asked: true, known: known,
		tree: d.tree, request: request, choice: choice, chosen: l.plan.devices[q.resource],
		planned: l.plan.others(q.resource),
	}
	return l.plan.devices[q.resource], known.String() + "; " + choice.Reason, nil
}

// seen is what the kubelet and the sources of intent know when it asks.
type seen struct {
	checkpoint    kubelet.Checkpoint
	checkpointErr error
	view          *kubelet.View  // nil where PodResources could not be read, or not safely
	answer        *intent.Answer // nil where no source tells
	gone          map[int]bool   // allocations that PodResources, which could not list all pods, shows to have ended
	cpus          *cpus          // nil where they do not matter, or are not known
}

// lookFor reads everything at once. PodResources is read where that is safe: not while devices of this very container may be in flight.
func (c *coordinator) lookFor(ctx context.Context, before *state, q question) (s seen) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		_ = survive.Do(c.log, func() error { s.answer = c.askedFor(ctx); return nil }) // do without it
	})
	all.Go(func() { s.checkpoint, s.checkpointErr = c.recorded() })
	mayLook := len(q.mustInclude) == 0 && c.look != nil
	if mayLook {
		s.view = c.holdings(ctx)
	}
	all.Wait()
	if mayLook && s.view == nil && (s.answer == nil || s.answer.Source == intent.APIServer) {
		s.gone = c.notShown(ctx, before.ledger.suspected(q))
	}
	s.cpus = c.cpusFor(ctx, before, q, s)
	return s
}

// askedFor is what the pods of the node ask for, nil where no source tells before ctx is done.
func (c *coordinator) askedFor(ctx context.Context) *intent.Answer {
	if c.pods == nil {
		return nil
	}
	if answer, ok := c.pods(ctx); ok {
		return &answer
	}
	return nil
}

// holdings is what PodResources shows, nil where it does not answer before ctx is done, or must not be asked.
func (c *coordinator) holdings(ctx context.Context) *kubelet.View {
	if !c.inFlight.settle(ctx) {
		c.log.Warn("choose without PodResources: another container is being given devices at this moment")
		return nil
	}
	view, err := c.look(ctx)
	if err != nil {
		c.log.Warn("choose without PodResources: who holds what may be out of date", "error", err)
		return nil
	}
	return &view
}

// asking finds who asks, and what that container was given already: an allocation to add to, new and empty for its first half. A
// source of intent knows best; without one it is the order of the questions that tells.
func (d *deciding) asking(q question, view *kubelet.View, answer *intent.Answer) (*allocation, knowledge) {
	l := d.ledger
	if view == nil && answer == nil && l.progress == open && l.foresees(q, l.asked) {
		return l.plan.holder, l.plan.knowledge()
	}
	if answer != nil && view == nil {
		l.bury(*answer)
	}
	newest, why := l.following(q, view)
	known := knowledge{Source: intent.Inference, Why: why}
	if view != nil {
		known.Source = intent.PodResources
	}
	holder := newest
	if answer != nil {
		candidates := l.narrow(l.candidates(q, view, *answer), newest)
		known.asker = l.identify(q, view, *answer, candidates, l.open(newest))
		if known.asker == nil {
			known.Why += fmt.Sprintf(" (%s shows no container that lacks %d)", answer.Source, q.size)
		} else {
			holder = l.holderOf(known.asker, newest)
			known.Source, known.Why = answer.Source, known.asker.half(holder)
		}
	}
	if holder == nil {
		holder = &allocation{looked: len(q.mustInclude) > 0}
	}
	if holder.owner == nil && holder.candidates == nil {
		holder.candidates = l.possible(known.asker, view)
	}
	holder.looked = holder.looked || view != nil
	return holder, known
}

// offer is what the kubelet lets us choose from.
type offer struct {
	must []string // these have to be chosen
	free []string
}

// usable returns what may be chosen of the available IDs. What no living container has comes first. What the kubelet offers is free,
// whatever we thought, unless PodResources shows at this moment that a container has it: then the kubelet is about to hand it out twice
// (kubernetes PR 137534). What PodResources shows with nobody is of a pod that is gone: the kubelet frees all of a pod's devices at
// once. Of the asking container itself, the holder, one device goes back alone. While PodResources does not answer the kubelet may be
// right or wrong: what we have with somebody counts as free for others, but is chosen only where the rest is too few, and keeps
// its holder until its Allocate, when that is asked for (conflict.go).
func (d *deciding) usable(q question, view *kubelet.View, holder *allocation) offer {
	l := d.ledger
	o := offer{must: q.mustInclude}
	var held []string
	for _, id := range q.available {
		a := l.holders[q.resource][id]
		switch {
		case slices.Contains(q.mustInclude, id):
			continue
		case a == nil:
		case view != nil && a.owner != nil && slices.Contains(view.Containers[*a.owner][q.resource], id):
			d.warn("kubelet offers a device that is in use", "resource", q.resource, "device", id, "owner", a.owner.String())
			held = append(held, id)
			continue
		case view == nil && a != holder:
			a.doubtful = true
			held = append(held, id)
			continue
		case view == nil || a.owner != nil:
			l.release(q.resource, id)
		default:
			l.drop(a)
		}
		o.free = append(o.free, id)
	}
	if len(o.must)+len(o.free) < q.size {
		o.must, o.free = slices.Concat(o.must, o.free), held
	}
	return o
}
