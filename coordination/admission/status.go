package admission

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/history"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/resources"
)

// Status is that of the state, with what the kubelet tells at this moment. It changes nothing.
func (c *Coordinator) Status(ctx context.Context) *api.StatusResponse {
	return c.current().status(c.now(), c.seen(ctx, 0))
}

// Resources are those of both plugins with their devices. The kubelet may be asked, for a second at the most.
func (c *Coordinator) Resources() []*api.Resource {
	return c.current().status(c.now(), c.seen(context.Background(), seenFresh)).GetResources()
}

// status tells what the plugins have announced, with who holds it.
func (s *state) status(now time.Time, known sighting) *api.StatusResponse {
	answer := &api.StatusResponse{}
	b := newBooks(s.resources, known.found)
	for _, r := range s.resources.All() {
		answer.Resources = append(answer.Resources, s.resourceStatus(r, b, known))
	}
	if p := s.plan.live(now); p != nil {
		answer.Plan = &api.Plan{Devices: map[string]*api.DeviceList{}, ExpiresUnixNano: p.expires.UnixNano()}
		for name, ids := range p.devices {
			answer.Plan.Devices[name] = &api.DeviceList{Ids: slices.Clone(ids)}
		}
	}
	return answer
}

func (s *state) resourceStatus(r *resources.Resource, b *books, known sighting) *api.Resource {
	partners := s.partners(r.Kind, b, known)
	m := &api.Resource{Name: r.Name, Kind: string(r.Kind), Connected: r.Joined}
	for _, d := range r.Ordered() {
		status := &api.DeviceStatus{Device: d.Encode(), Switch: s.tree.Switch(d.Address)}
		switch h := b.holder(r.Name, d.ID); {
		case h == nil:
		case known.has(h):
			status.Ended = ownerOf(h)
		default:
			status.Allocated, status.Owner = true, ownerOf(h)
		}
		status.Stranded = d.Healthy && !status.Allocated && !partners[status.Switch]
		m.Devices = append(m.Devices, status)
	}
	return m
}

// ownerOf names a holder, nil where its name is not known.
func ownerOf(h *holders.Holder) *api.Owner {
	if h.Pod == (kubelet.Pod{}) || h.Name == "" {
		return nil
	}
	return history.Owner(kubelet.Container{Pod: h.Pod, Name: h.Name})
}

// partners are the switches with a free device of the other kind.
func (s *state) partners(kind device.Kind, b *books, known sighting) map[string]bool {
	switches := map[string]bool{}
	for _, r := range s.resources.OfKind(kind.Other()) {
		for _, d := range r.Ordered() {
			if h := b.holder(r.Name, d.ID); d.Healthy && (h == nil || known.has(h)) {
				switches[s.tree.Switch(d.Address)] = true
			}
		}
	}
	return switches
}

const (
	// seenFresh is the maximum age of the kubelet's answers in metrics, which anybody can request, as long as
	// no decision is made.
	seenFresh = 5 * time.Second
	// for asking the kubelet about all of them
	endedLimit = time.Second
	// pods that the kubelet is asked about at once; its limiter has as many more for an admission
	endedBurst = 5
	endedPause = 20 * time.Millisecond
)

// sight is the last look for people. It is valid for one state: the next decision makes it stale.
type sight struct {
	mu   sync.Mutex
	at   time.Time
	of   *state
	last sighting
}

// sighting is who holds what, and the pods among them that have ended. The kubelet frees their devices when
// it next needs some; people are told that they are free.
type sighting struct {
	found holders.Holders
	ended map[string]bool // by key
}

// key is that of a holder's pod.
func key(h *holders.Holder) string { return h.UID + " " + h.Pod.Namespace + "/" + h.Pod.Name }

// has reports whether the pod of a holder has ended.
func (s sighting) has(h *holders.Holder) bool { return s.ended[key(h)] }

// seen returns the last look at the current state if that is younger than fresh, else a new one.
func (c *Coordinator) seen(ctx context.Context, fresh time.Duration) sighting {
	s := &c.sight
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := c.current(); s.of != of || c.now().Sub(s.at) >= fresh {
		ctx, cancel := context.WithTimeout(ctx, endedLimit)
		defer cancel()
		s.last = c.look(ctx)
		s.at, s.of = c.now(), of
	}
	return s.last
}

// look finds who holds what, by what may be read at any time: not by PodResources List.
func (c *Coordinator) look(ctx context.Context) (known sighting) {
	s, answer := c.current(), c.askedFor(ctx)
	known.found = s.found
	sources := holders.Sources{Known: s.known, Allocates: s.allocates, Pods: podsOf(answer)}
	if sources.Pods != nil {
		sources.Pods.All = false // those that have ended are told too
	}
	if n := s.given.container; n != nil && n.Owner == nil && answer == nil {
		sources.View, sources.Single = c.single(ctx, n.Pods[:min(len(n.Pods), maxSuspects)])
	}
	if recorded, err := c.Recorded(); err == nil {
		sources.Recorded = &recorded
		known.found, _ = holders.Find(sources)
	}
	known.name(answer)
	if answer != nil && answer.Source != intent.APIServer {
		known.ended = known.notAmong(answer.Pods)
	} else {
		known.ended = c.endedOf(ctx, known.found, sources.View, sources.Single)
	}
	return known
}

// name marks which holders are init containers, where a source tells.
func (s *sighting) name(answer *intent.Answer) {
	if answer == nil {
		return
	}
	init := map[string]bool{}
	for _, pod := range answer.Pods {
		for _, c := range pod.Containers {
			init[pod.UID+"/"+c.Name] = c.Role == intent.Init
		}
	}
	s.found = slices.Clone(s.found)
	for i, h := range s.found {
		s.found[i].Init = h.Init || init[h.UID+"/"+h.Name]
	}
}

// notAmong are those whose pod is not among those that live.
func (s *sighting) notAmong(pods []intent.Pod) map[string]bool {
	named, alive := map[kubelet.Pod]bool{}, map[string]bool{}
	for _, pod := range pods {
		named[pod.Pod], alive[pod.UID] = true, true
	}
	gone := map[string]bool{}
	for i := range s.found {
		h := &s.found[i]
		gone[key(h)] = h.UID != "" && !alive[h.UID] || h.UID == "" && h.Pod != (kubelet.Pod{}) && !named[h.Pod]
	}
	return gone
}

// endedOf asks the kubelet, pod by pod and not too fast, which of them it does not have any more, or shows
// without the devices of a container that is no init container.
// Single are those that it has told of just before, as a view shows them.
func (c *Coordinator) endedOf(
	ctx context.Context, found holders.Holders, view *kubelet.View, single []kubelet.Pod,
) map[string]bool {
	gone, asked := map[string]bool{}, []kubelet.Pod{}
	for _, h := range found {
		if h.Pod != (kubelet.Pod{}) && !slices.Contains(asked, h.Pod) && !slices.Contains(single, h.Pod) {
			asked = append(asked, h.Pod)
		}
	}
	more, told := c.single(ctx, asked)
	for i := range found {
		h, of := &found[i], view
		switch {
		case slices.Contains(told, h.Pod):
			of = more
		case !slices.Contains(single, h.Pod):
			continue
		}
		shown, listed := of.Containers[kubelet.Container{Pod: h.Pod, Name: h.Name}]
		gone[key(h)] = gone[key(h)] || !slices.Contains(of.Pods, h.Pod) || listed && len(shown) == 0
	}
	return gone
}

// single asks the kubelet about pods, one by one and not too fast, with Get, which frees nothing. Told are
// those of which it has told before ctx is done; nil where it has told of none.
func (c *Coordinator) single(
	ctx context.Context, pods []kubelet.Pod,
) (all *kubelet.View, told []kubelet.Pod) {
	all = &kubelet.View{Containers: map[kubelet.Container]kubelet.Devices{}}
	for i, pod := range pods {
		if i >= endedBurst {
			select {
			case <-time.After(endedPause):
			case <-ctx.Done():
				return all, told
			}
		}
		if view, err := c.Get(ctx, pod); err == nil {
			told = append(told, pod)
			all.Life = view.Life
			all.Pods = append(all.Pods, view.Pods...)
			maps.Copy(all.Containers, view.Containers)
		}
	}
	if told == nil {
		return nil, nil
	}
	return all, told
}
