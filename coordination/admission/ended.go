package admission

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

const (
	// how old it may be for metrics what was found of containers that have ended: anybody can ask for those
	endedFresh = 5 * time.Second
	// for asking the kubelet about all of them
	endedLimit = time.Second
	// pods that the kubelet is asked about at once; its limiter has as many more for an admission
	endedBurst = 5
	endedPause = 20 * time.Millisecond
)

// endings are the allocations whose containers have ended. The kubelet frees their devices when it next needs
// some, and until then the ledger has them with their owners; people are told that they are free.
type endings struct {
	mu    sync.Mutex
	found time.Time
	gone  map[int]bool // by their IDs
}

// ended looks which containers have ended, unless that was done so short a time ago.
func (c *Coordinator) ended(ctx context.Context, fresh time.Duration) map[int]bool {
	e := &c.endings
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.now().Sub(e.found) < fresh {
		return e.gone
	}
	e.gone = nil
	ctx, cancel := context.WithTimeout(ctx, endedLimit)
	defer cancel()
	if held := c.current().ledger.owned(); len(held) > 0 {
		// whose list can be ahead of the kubelet's, and behind
		if answer := c.askedFor(ctx); answer != nil && answer.Source != intent.APIServer {
			e.gone = notAmong(held, answer.Pods)
		} else {
			e.gone, _ = c.single(ctx, held)
		}
	}
	e.found = c.now()
	return e.gone
}

// owned lists the allocations of known owners.
func (l *ledger) owned() []*allocation {
	var all []*allocation
	for a := range l.allocations() {
		if a.owner != nil {
			all = append(all, a)
		}
	}
	return all
}

// suspected lists the few allocations to ask the kubelet about where it does not list all pods: first those
// of which it offers a device, which have ended unless it hands that out twice; and others too, where it was
// to list them.
func (l *ledger) suspected(q question, others bool) []*allocation {
	offered := func(a *allocation) bool {
		return slices.ContainsFunc(q.available, func(id string) bool {
			return l.holders[q.resource][id] == a && !slices.Contains(q.mustInclude, id)
		})
	}
	held := slices.DeleteFunc(l.owned(), func(a *allocation) bool { return !others && !offered(a) })
	slices.SortFunc(held, func(a, b *allocation) int {
		return cmp.Or(first(offered(a), offered(b)), compareContainers(*a.owner, *b.owner))
	})
	return held[:min(len(held), endedBurst)]
}

// notAmong are those whose pod is not among those that live.
func notAmong(held []*allocation, pods []intent.Pod) map[int]bool {
	named, alive := map[kubelet.Pod]bool{}, map[string]bool{}
	for _, pod := range pods {
		named[pod.Pod], alive[pod.UID] = true, true
	}
	gone := map[int]bool{}
	for _, a := range held {
		if uid := a.podUID(); !named[a.owner.Pod] || uid != "" && !alive[uid] {
			gone[a.id] = true
		}
	}
	return gone
}

// single asks the kubelet about allocations, pod by pod and not too fast, with Get, which frees nothing:
// those are gone whose container it does not show any more with a device of theirs; of the living it tells
// what they have. Of those that it does not tell about before ctx is done nothing is said.
func (c *Coordinator) single(
	ctx context.Context, held []*allocation,
) (gone map[int]bool, living map[int]kubelet.Devices) {
	gone, living = map[int]bool{}, map[int]kubelet.Devices{}
	for i, a := range held {
		if i >= endedBurst {
			select {
			case <-time.After(endedPause):
			case <-ctx.Done():
				return gone, living
			}
		}
		switch view, err := c.Get(ctx, a.owner.Pod); {
		case err != nil:
		case shows(view, *a.owner, a):
			living[a.id] = view.Containers[*a.owner]
		default:
			gone[a.id] = true
		}
	}
	return gone, living
}
