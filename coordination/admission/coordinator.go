package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/survive"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// lookTimeout bounds a look at PodResources. It is answered in about a millisecond; the kubelet's limiter can make it wait.
const lookTimeout = 50 * time.Millisecond

// Config is what a coordinator reads, and whom it tells. The functions are called from several goroutines.
type Config struct {
	RunDir    string                                                   // of the ledger's checkpoint and of pairs files
	Refresh   func(device.Announcement) error                          // makes the newest tree as new as an announcement
	Newest    func() *topology.Tree                                    // that was read
	Look      func(context.Context) (kubelet.View, error)              // at all pods: not while devices are being allocated; nil: never
	Get       func(context.Context, kubelet.Pod) (kubelet.View, error) // at one pod, at any time
	Recorded  func() (kubelet.Checkpoint, error)
	Granted   func() ([]kubelet.Granted, error)           // what the checkpoint says of containers
	Pods      func(context.Context) (intent.Answer, bool) // what pods ask for; false where no source tells; nil: never
	Alignment intent.Alignment                            // of pods that say nothing
	Log       *slog.Logger
	Observer  Observer // nil for none

	AllocatableCPUs func(context.Context) (topology.CPUSet, error) // that containers can have alone; nil: never
	NodeCPUs        func() map[int]topology.CPUSet                 // by NUMA node
}

// Coordinator answers for both plugins: it turns the kubelet's separate questions into one decision.
type Coordinator struct {
	Config

	store    *store
	inFlight *inFlight
	endings  endings

	state   atomic.Pointer[state]
	writing sync.Mutex // of pairs files, one after the other

	mu        sync.Mutex // held while a decision is made, and never while something is read or written
	decisions decisions
	announced chan struct{} // closed on the next announcement; nil where nobody waits
	closed    bool          // another server goes on from the ledger as it is: nothing is decided here any more
}

// New makes a coordinator that goes on where an earlier one of the run folder ended.
func New(config Config) (*Coordinator, error) {
	store, err := newStore(config.RunDir, config.Log)
	if err != nil {
		return nil, err
	}
	c := &Coordinator{Config: config, store: store, inFlight: newInFlight(time.Now)}
	c.state.Store(&state{tree: config.Newest(), ledger: newLedger(time.Now)})
	c.recover()
	return c, nil
}

// Save writes the ledger down whenever it has changed, and once more when ctx is done. It is called once.
func (c *Coordinator) Save(ctx context.Context) error {
	return c.store.run(ctx, func() checkpoint { return c.current().save() })
}

// touched notes that something has changed which a checkpoint holds. It does not block.
func (c *Coordinator) touched() { c.store.touch() }

// pairsDir is the folder of pairs files.
func (c *Coordinator) pairsDir() string { return filepath.Join(c.RunDir, "pairs") }

// Alive reports that a decision hangs, so that a restart would help. It waits until ctx is done at most.
func (c *Coordinator) Alive(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !c.mu.TryLock() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the coordinator hangs: %w", context.Cause(ctx))
		}
	}
	c.mu.Unlock()
	return nil
}

// errClosed means that a server has ended.
var errClosed = errors.New("this server has ended; the other plugin serves next")

// Close has nothing decided or recorded from now on.
func (c *Coordinator) Close() { c.locked(func() { c.closed = true }) }

// question is a GetPreferredAllocation as the kubelet asks it.
type question struct {
	resource    string
	available   []string // free in the kubelet's eyes, on the NUMA nodes it chose; the must-include ones among them
	mustInclude []string
	size        int
}

// Announce takes a plugin's devices over.
func (c *Coordinator) Announce(name string, kind device.Kind, a device.Announcement) error {
	defer c.touched()
	if err := c.Refresh(a); err != nil {
		c.Log.Warn("keep the PCI tree as it was read before", "error", err)
	}
	c.inFlight.forget(name)
	err := c.decide(func(d *deciding) error {
		if err := d.ledger.room(name, 0); err != nil {
			return fmt.Errorf("announce %s: %w", name, err)
		}
		d.tree = c.Newest() // another announcement may have made it newer than this one
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

// Leave notes that the plugin of a resource is gone.
func (c *Coordinator) Leave(name string) {
	defer c.touched()
	_ = c.decide(func(d *deciding) error { d.ledger.leave(name); return nil }) // of a server that has ended nobody is told
}

// Prefer chooses devices for a GetPreferredAllocation and plans for the half of the request that has not been asked. The reason says
// what was known and what came of it. Where the ledger has changed since the kubelet was read it is read again, and
// where ctx is done nothing is changed: the asker has answered without us, and the kubelet goes by that.
func (c *Coordinator) Prefer(
	ctx context.Context, resource string, available, mustInclude []string, size int,
) (ids []string, reason string, err error) {
	return c.prefer(ctx, question{resource, available, mustInclude, size})
}

func (c *Coordinator) prefer(ctx context.Context, q question) (ids []string, reason string, err error) {
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
func (c *Coordinator) read(ctx context.Context, s *state, asked time.Time, q question) seen {
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
func (c *Coordinator) lookFor(ctx context.Context, before *state, q question) (s seen) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		_ = survive.Do(c.Log, func() error { s.answer = c.askedFor(ctx); return nil }) // do without it
	})
	all.Go(func() { s.checkpoint, s.checkpointErr = c.Recorded() })
	mayLook := len(q.mustInclude) == 0 && c.Look != nil
	if mayLook {
		s.view = c.holdings(ctx)
	}
	all.Wait()
	if s.view == nil && (s.answer == nil || s.answer.Source == intent.APIServer) {
		s.gone = c.notShown(ctx, before.ledger.suspected(q, mayLook))
	}
	s.cpus = c.cpusFor(ctx, before, q, s)
	return s
}

// askedFor is what the pods of the node ask for, nil where no source tells before ctx is done.
func (c *Coordinator) askedFor(ctx context.Context) *intent.Answer {
	if c.Pods == nil {
		return nil
	}
	if answer, ok := c.Pods(ctx); ok {
		return &answer
	}
	return nil
}

// holdings is what PodResources shows, nil where it does not answer before ctx is done, or must not be asked.
func (c *Coordinator) holdings(ctx context.Context) *kubelet.View {
	if !c.inFlight.settle(ctx) {
		c.Log.Warn("choose without PodResources: another container is being given devices at this moment")
		return nil
	}
	view, err := c.Look(ctx)
	if err != nil {
		c.Log.Warn("choose without PodResources: who holds what may be out of date", "error", err)
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
