package coordination

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// lookTimeout bounds a look at PodResources. It is answered in about a millisecond; the kubelet's limiter can make it wait.
const lookTimeout = 50 * time.Millisecond

// coordinator answers for both plugins: it turns the kubelet's separate questions into one decision.
type coordinator struct {
	readTree func() (*topology.Tree, error)
	look     func(context.Context) (kubelet.View, error)              // at all pods: not while devices are being allocated
	get      func(context.Context, kubelet.Pod) (kubelet.View, error) // at one pod, at any time
	recorded func() (kubelet.Checkpoint, error)
	log      *slog.Logger

	mu     sync.Mutex
	tree   *topology.Tree
	ledger *ledger
	last   record
}

// record is the newest Allocate, and whom the kubelet's checkpoint showed with its devices at that time. As soon as it
// shows anybody else the kubelet is done with the container.
type record struct {
	resource string
	ids      []string
	holders  []string
	known    bool
	refused  bool // its container was refused after it: nothing follows
}

// question is a GetPreferredAllocation as the kubelet asks it.
type question struct {
	resource    string
	available   []string // free in the kubelet's eyes, on the NUMA nodes it chose; the must-include ones among them
	mustInclude []string
	size        int
}

// announce takes a plugin's devices over. The tree is read again: devices change when the machine does.
func (c *coordinator) announce(name string, kind Kind, a Announcement) {
	tree, err := c.readTree()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.log.Warn("keep the PCI tree as it was read before", "error", err)
	} else {
		c.tree = tree
	}
	c.ledger.announce(name, kind, a)
}

func (c *coordinator) leave(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ledger.leave(name)
}

// prefer chooses devices for a question and plans for the half of the request that has not been asked. The reason says
// what was known and what came of it.
func (c *coordinator) prefer(ctx context.Context, q question) (ids []string, reason string, err error) {
	asked := c.ledger.now() // a look may have to wait for the kubelet's limiter
	checkpoint, checkpointErr := c.recorded()
	view := c.lookFor(ctx, q)
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.ledger
	l.asked, l.progress = asked, c.last.progress(checkpoint, checkpointErr)
	r := l.resources[q.resource]
	if r == nil {
		return nil, "", fmt.Errorf("choose %s: no plugin has announced it", q.resource)
	}
	holder, known := c.asking(q, view)
	request := l.request(c.tree, r, c.usable(q, view), q, holder)
	choice, err := placement.Choose(c.tree, request)
	if err != nil {
		return nil, "", fmt.Errorf("choose %d of %s: %w", q.size, q.resource, err)
	}
	l.plan = l.newPlan(choice, r, q, holder)
	return l.plan.devices[q.resource], known + "; " + choice.Reason, nil
}

// lookFor reads PodResources where that is safe: not while devices of this very container may be in flight.
func (c *coordinator) lookFor(ctx context.Context, q question) *kubelet.View {
	if len(q.mustInclude) > 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	view, err := c.look(ctx)
	if err != nil {
		c.log.Warn("choose without PodResources: who holds what may be out of date", "error", err)
		return nil
	}
	return &view
}

// asking finds what the container that asks was given already: an allocation to add to, new and empty for its first half.
func (c *coordinator) asking(q question, view *kubelet.View) (*allocation, string) {
	l := c.ledger
	if len(q.mustInclude) > 0 {
		if a := l.holders[q.resource][q.mustInclude[0]]; a != nil {
			return a, takesOver
		}
		return &allocation{looked: true}, "first half"
	}
	var arrived []kubelet.Pod
	if view != nil {
		arrived = l.observe(*view)
	}
	newest := l.newest()
	if view != nil {
		l.settle(newest, q.resource, *view)
	}
	follows, why := l.follows(newest, q.resource, q.available, view != nil, arrived)
	if !follows {
		newest = &allocation{}
	}
	if view != nil && newest.owner == nil && newest.candidates == nil {
		newest.candidates = slices.Clone(l.arrived)
	}
	newest.looked = newest.looked || view != nil
	return newest, why
}

// usable returns the available IDs that no living container has. What the kubelet offers is free, whatever we thought, unless
// PodResources shows at this moment that a container has it: then the kubelet is about to hand it out twice
// (kubernetes PR 137534), and it is used only where the rest is too few.
func (c *coordinator) usable(q question, view *kubelet.View) []string {
	l := c.ledger
	usable := slices.DeleteFunc(slices.Clone(q.available), func(id string) bool {
		a := l.holders[q.resource][id]
		if a == nil || slices.Contains(q.mustInclude, id) {
			return false
		}
		if view != nil && a.owner != nil && slices.Contains(view.Containers[*a.owner][q.resource], id) {
			c.log.Warn("kubelet offers a device that is in use", "resource", q.resource, "device", id, "owner", a.owner.String())
			return true
		}
		l.release(q.resource, id)
		return false
	})
	if len(usable) < q.size {
		return q.available
	}
	return usable
}

// allocated records what the kubelet took and returns it in the order in which the container should list it; or it says why
// the container must not have it, in one sentence.
func (c *coordinator) allocated(ctx context.Context, name string, ids []string) (order []string, refusal string) {
	checkpoint, err := c.recorded()
	refusal = c.conflict(ctx, name, ids)
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.ledger
	if refusal != "" {
		l.plan, c.last.refused = nil, true // the kubelet fails the pod
		return nil, refusal
	}
	if p := l.livePlan(); p != nil && l.sequence > p.after && c.last.progress(checkpoint, err) == complete {
		l.plan = nil // the rest of it was not wanted
	}
	c.last = record{resource: name, ids: slices.Clone(ids), holders: checkpoint.Holders(name, ids), known: err == nil}
	var planned []string
	if p := l.livePlan(); p != nil {
		planned = p.devices[name]
	}
	before := l.newest()
	a := l.allocate(name, ids)
	if sameSet(planned, ids) || before == nil || !before.lacks(name) || !l.sameNodes(before, name, ids) {
		before = nil
	}
	return l.inPairOrder(c.tree, planned, a, before, name, ids), ""
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
