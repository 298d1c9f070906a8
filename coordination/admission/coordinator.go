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
	"github.com/tandem-k8s/tandem/coordination/history"
	"github.com/tandem-k8s/tandem/coordination/inflight"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Config is what a coordinator reads, and whom it tells. The functions are called from several goroutines.
type Config struct {
	RunDir    string           // folder of the ledger's checkpoint and of pairs files
	Alignment intent.Alignment // of pods that say nothing
	Log       *slog.Logger
	Observer  Observer // nil for none

	// Refresh reads the PCI tree where an announcement tells of what the newest one lacks.
	Refresh func(device.Announcement) error
	// Newest is the tree that was read last.
	Newest func() *topology.Tree
	// Look shows all pods by PodResources List. It is not called while devices are being allocated. Nil for
	// never.
	Look func(context.Context) (kubelet.View, error)
	// Get shows one pod by PodResources Get. It is safe at any time.
	Get func(context.Context, kubelet.Pod) (kubelet.View, error)
	// Recorded reads the kubelet's checkpoint: who has which device.
	Recorded func() (kubelet.Checkpoint, error)
	// Granted reads what the checkpoint has of containers: their devices and mounts.
	Granted func() ([]kubelet.Granted, error)
	// Pods tells what the pods of the node ask for, false where no source does. Nil for never.
	Pods func(context.Context) (intent.Answer, bool)
	// AllocatableCPUs are those that containers can have alone. Nil for never.
	AllocatableCPUs func(context.Context) (topology.CPUSet, error)
	// NodeCPUs are all CPUs by NUMA node.
	NodeCPUs func() map[int]topology.CPUSet
}

// Coordinator answers for both plugins: it turns the kubelet's separate questions into one decision.
type Coordinator struct {
	Config

	store    *store
	inFlight *inflight.Allocates
	endings  endings

	state atomic.Pointer[state]
	pairs *pairs.Folder

	mu        sync.Mutex // held while a decision is made, and never while something is read or written
	history   history.Log
	announced chan struct{} // closed on the next announcement; nil where nobody waits
	closed    bool          // another server goes on from the ledger as it is: nothing is decided here any more
}

// New makes a coordinator that goes on where an earlier one of the run folder ended.
func New(config Config) (*Coordinator, error) {
	store, err := newStore(config.RunDir, config.Log)
	if err != nil {
		return nil, err
	}
	c := &Coordinator{Config: config, store: store, inFlight: inflight.New(time.Now)}
	c.pairs = pairs.NewFolder(filepath.Join(config.RunDir, "pairs"), config.Log)
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
	resource string
	// free in the kubelet's eyes, on the NUMA nodes it chose; the must-include ones among them
	available   []string
	mustInclude []string
	size        int
}

// Announce takes a plugin's devices over.
func (c *Coordinator) Announce(name string, kind device.Kind, a device.Announcement) error {
	defer c.touched()
	if err := c.Refresh(a); err != nil {
		c.Log.Warn("keep the PCI tree as it was read before", "error", err)
	}
	c.inFlight.Forget(name)
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
	// of a server that has ended nobody is told
	_ = c.decide(func(d *deciding) error { d.ledger.leave(name); return nil })
}

// Begin notes an Allocate of which the plugin will tell when it returns.
func (c *Coordinator) Begin(resource string, ids []string) { c.inFlight.Begin(resource, ids) }

// Returned notes that the kubelet is about to have its answer to an Allocate.
func (c *Coordinator) Returned(resource string, ids []string) { c.inFlight.End(resource, ids) }

// Prefer chooses devices for a GetPreferredAllocation and plans for the half of the request that has not been
// asked. The reason says what was known and what came of it. Where the ledger has changed since the kubelet
// was read it is read again, and where ctx is done nothing is changed: the asker has answered without us, and
// the kubelet goes by that.
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

// choose answers a question by what was seen for it, and keeps the answer as the plan.
func (d *deciding) choose(q question, asked time.Time, now seen) (ids []string, reason string, err error) {
	l := d.ledger
	l.version++
	d.at, d.progress, d.cpus = asked, d.reached(now.checkpoint, now.checkpointErr), now.cpus
	for a := range l.allocations() {
		if now.gone[a.id] {
			l.forget(a)
		}
	}
	r := l.resources[q.resource]
	holder, known := d.asking(q, now.view, now.answer)
	d.view = now.view
	if d.progress == complete && !d.last.refused {
		l.reconcile(now.checkpoint)
	}
	request, remark := d.request(r, d.usable(q, now, holder), q, holder, known.asker)
	known.Remark = remark
	choice, err := placement.Choose(d.tree, request)
	if err != nil {
		return nil, "", fmt.Errorf("choose %d of %s: %w", q.size, q.resource, err)
	}
	l.plan = l.newPlan(choice, r, q, holder, known.asker)
	d.promise.asked(&d.words, q.resource, l.plan, l.now())
	d.words.Asked(known.Source)
	d.asked = &history.Decision{
		At: asked, Took: l.now().Sub(asked), Container: known.container(holder), Asked: true, Known: known.String(),
		Resource: q.resource, Size: q.size, Available: len(q.available), MustInclude: q.mustInclude,
		Tree: d.tree, Request: request, Choice: choice, Chosen: l.plan.devices[q.resource],
		Planned: l.plan.others(q.resource),
	}
	return l.plan.devices[q.resource], known.String() + "; " + choice.Reason, nil
}

// asking finds who asks, and what that container was given already: an allocation to add to, new and empty
// for its first half. A source of intent knows best; without one it is the order of the questions that tells.
func (d *deciding) asking(q question, view *kubelet.View, answer *intent.Answer) (*allocation, knowledge) {
	l := d.ledger
	if view == nil && answer == nil && d.progress == open && l.foresees(q, d.at) {
		return l.plan.holder, l.plan.knowledge()
	}
	if answer != nil && view == nil {
		l.bury(*answer)
	}
	newest, why := d.following(q, view)
	known := knowledge{Source: intent.Inference, Why: why}
	if view != nil {
		known.Source = intent.PodResources
	}
	holder := newest
	if answer != nil {
		candidates := d.narrow(l.candidates(q, view, *answer), newest)
		known.asker = l.identify(q, view, *answer, candidates, d.open(newest))
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

// usable returns what may be chosen of the available IDs. What no living container has comes first. What the
// kubelet offers is free, whatever we thought, unless PodResources shows at this moment that a container has
// it: then the kubelet is about to hand it out twice (kubernetes PR 137534). What PodResources shows with
// nobody is of a pod that is gone: the kubelet frees all of a pod's devices at once. Of the asking container
// itself, the holder, one device goes back alone, and so it does of a container that Get shows to live. While
// PodResources tells nothing of the owner the kubelet may be right or wrong: what we have with somebody
// counts as free for others, but is chosen only where the rest is too few, and keeps its holder until its
// Allocate, when that is asked for (conflict.go).
func (d *deciding) usable(q question, now seen, holder *allocation) offer {
	l, view := d.ledger, now.view
	o := offer{must: q.mustInclude}
	var held []string
	for _, id := range q.available {
		a := l.holders[q.resource][id]
		switch {
		case slices.Contains(q.mustInclude, id):
			continue
		case a == nil:
		case view != nil && a.owner != nil && slices.Contains(view.Containers[*a.owner][q.resource], id),
			slices.Contains(now.living[a.id][q.resource], id):
			d.warn("kubelet offers a device that is in use", "resource", q.resource, "device", id, "owner",
				a.owner.String())
			held = append(held, id)
			continue
		case view == nil && a != holder && now.living[a.id] == nil:
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
