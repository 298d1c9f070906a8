package admission

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/asking"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/bounded"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/history"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/ledger"
)

// newestPods asks the kubelet about the pods of which one got the newest Allocate, where no look has shown
// yet which. It is asked with Get, which frees nothing; where that fails, whose the newest devices are stays
// open.
func (c *Coordinator) newestPods(ctx context.Context) kubelet.View {
	ctx, cancel := context.WithTimeout(ctx, bounded.Look)
	defer cancel()
	var pods []kubelet.Pod
	if newest := c.current().ledger.Newest(); newest != nil && newest.Owner == nil {
		pods = newest.Candidates[:min(len(newest.Candidates), maxSuspects)]
	}
	all := kubelet.View{Containers: map[kubelet.Container]kubelet.Devices{}}
	for _, pod := range pods {
		if view, err := c.Get(ctx, pod); err == nil {
			maps.Copy(all.Containers, view.Containers)
		}
	}
	return all
}

// Status is that of the state, with what the kubelet tells at this moment.
func (c *Coordinator) Status(ctx context.Context) *api.StatusResponse {
	newest, ended := c.seen(ctx, 0)
	return c.current().status(c.now(), newest, ended)
}

// Resources are those of both plugins with their devices. The kubelet may be asked, for a second at the most.
func (c *Coordinator) Resources() []*api.Resource {
	newest, ended := c.seen(context.Background(), seenFresh)
	return c.current().status(c.now(), newest, ended).GetResources()
}

// status tells what the ledger holds, but for what containers have that have ended, and of devices whose
// owner it does not know, what a view shows.
func (s *state) status(now time.Time, view kubelet.View, ended map[int]bool) *api.StatusResponse {
	answer := &api.StatusResponse{}
	for _, r := range s.ledger.Resources() {
		answer.Resources = append(answer.Resources, s.resourceStatus(r, view, ended))
	}
	if p := s.plan.live(now); p != nil {
		answer.Plan = &api.Plan{Devices: map[string]*api.DeviceList{}, ExpiresUnixNano: p.expires.UnixNano()}
		for name, ids := range p.devices {
			answer.Plan.Devices[name] = &api.DeviceList{Ids: slices.Clone(ids)}
		}
	}
	return answer
}

func (s *state) resourceStatus(r *ledger.Resource, view kubelet.View, ended map[int]bool) *api.Resource {
	l, partners := s.ledger, s.partners(r.Kind, ended)
	m := &api.Resource{Name: r.Name, Kind: string(r.Kind), Connected: r.Joined}
	for _, d := range slices.SortedFunc(maps.Values(r.Devices), device.Compare) {
		device := &api.DeviceStatus{Device: d.Encode(), Switch: s.tree.Switch(d.Address)}
		switch a := l.Holder(r.Name, d.ID); {
		case a == nil:
		case ended[a.ID]:
			if a.Owner != nil {
				device.Ended = history.Owner(*a.Owner)
			}
		default:
			device.Allocated = true
			if a.Owner != nil {
				device.Owner = history.Owner(*a.Owner)
			} else if owner, _, shown := view.HolderOf(r.Name, []string{d.ID}); shown {
				device.Owner = history.Owner(owner)
			}
		}
		device.Stranded = d.Healthy && !device.Allocated && !partners[device.Switch]
		m.Devices = append(m.Devices, device)
	}
	return m
}

// partners are the switches with a free device of the other kind.
func (s *state) partners(kind device.Kind, ended map[int]bool) map[string]bool {
	l, switches := s.ledger, map[string]bool{}
	for _, r := range l.OfKind(kind.Other()) {
		for id, d := range r.Devices {
			if a := l.Holder(r.Name, id); d.Healthy && (l.IsFree(r.Name, id) || ended[a.ID]) {
				switches[s.tree.Switch(d.Address)] = true
			}
		}
	}
	return switches
}

// Check says what is wrong with the ledger, nil where nothing is.
func (c *Coordinator) Check() error { return c.current().ledger.Check() }

const (
	// how old it may be for metrics what the kubelet was asked: anybody can ask for those
	seenFresh = 5 * time.Second
	// for asking the kubelet about all of them
	endedLimit = time.Second
	// pods that the kubelet is asked about at once; its limiter has as many more for an admission
	endedBurst = 5
	endedPause = 20 * time.Millisecond
)

// sight is what the kubelet was last asked for people alone: whose the newest devices are, and which
// allocations are those of containers that have ended. The kubelet frees their devices when it next needs
// some, and until then the ledger has them with their owners; people are told that they are free.
type sight struct {
	mu     sync.Mutex
	at     time.Time
	newest kubelet.View
	gone   map[int]bool // by their IDs
}

// seen looks, unless that was done so short a time ago.
func (c *Coordinator) seen(
	ctx context.Context, fresh time.Duration,
) (newest kubelet.View, ended map[int]bool) {
	s := &c.sight
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.now().Sub(s.at) >= fresh {
		s.newest, s.gone = c.newestPods(ctx), c.ended(ctx)
		s.at = c.now()
	}
	return s.newest, s.gone
}

// ended are the allocations whose containers have ended.
func (c *Coordinator) ended(ctx context.Context) (gone map[int]bool) {
	ctx, cancel := context.WithTimeout(ctx, endedLimit)
	defer cancel()
	if held := c.current().ledger.Owned(); len(held) > 0 {
		// whose list can be ahead of the kubelet's, and behind
		if answer := c.askedFor(ctx); answer != nil && answer.Source != intent.APIServer {
			gone = notAmong(held, answer.Pods)
		} else {
			gone, _ = c.single(ctx, held)
		}
	}
	return gone
}

// suspected lists the few allocations to ask the kubelet about where it does not list all pods: first those
// of which it offers a device, which have ended unless it hands that out twice; and others too, where it was
// to list them.
func (s *state) suspected(q asking.Question, others bool) []*ledger.Allocation {
	held := s.ledger.Identified()
	slices.SortStableFunc(held, func(a, b *ledger.Allocation) int {
		return strings.Compare(a.OwnerName(), b.OwnerName())
	})
	var first, rest []*ledger.Allocation
	for _, a := range held {
		switch {
		case q.Offers(a):
			first = append(first, a)
		case others:
			rest = append(rest, a)
		}
	}
	all := slices.Concat(first, rest)
	return all[:min(len(all), endedBurst)]
}

// notAmong are those whose pod is not among those that live.
func notAmong(held []*ledger.Allocation, pods []intent.Pod) map[int]bool {
	named, alive := map[kubelet.Pod]bool{}, map[string]bool{}
	for _, pod := range pods {
		named[pod.Pod], alive[pod.UID] = true, true
	}
	gone := map[int]bool{}
	for _, a := range held {
		if uid := a.PodUID(); !named[a.Owner.Pod] || uid != "" && !alive[uid] {
			gone[a.ID] = true
		}
	}
	return gone
}

// single asks the kubelet about allocations of known pods, pod by pod and not too fast, with Get, which frees
// nothing: those are gone whose container it does not show any more with a device of theirs or, where the
// container is not known and can be an init container, whose pod it does not show; of the living it tells
// what they have. Of those that it does not tell about before ctx is done nothing is said.
func (c *Coordinator) single(
	ctx context.Context, held []*ledger.Allocation,
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
		view, err := c.Get(ctx, a.Pods()[0])
		if err != nil {
			continue
		}
		if shown, lives := a.Shown(view); lives {
			living[a.ID] = view.Containers[shown]
		} else if a.Owner != nil || len(view.Pods) == 0 {
			gone[a.ID] = true
		}
	}
	return gone, living
}
