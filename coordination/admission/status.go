package admission

import (
	"context"
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/history"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// newestPods asks the kubelet about the pods of which one got the newest Allocate, where no look has shown
// yet which. It is asked with Get, which frees nothing; where that fails, whose the newest devices are stays
// open.
func (c *Coordinator) newestPods(ctx context.Context) kubelet.View {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var pods []kubelet.Pod
	if newest := c.current().ledger.newest(); newest != nil && newest.owner == nil {
		pods = newest.candidates[:min(len(newest.candidates), maxSuspects)]
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
	newest, ended := c.newestPods(ctx), c.ended(ctx, 0)
	return c.current().status(newest, ended)
}

// Resources are those of both plugins with their devices. The kubelet may be asked, for a second at the most.
func (c *Coordinator) Resources() []*api.Resource {
	return c.current().status(kubelet.View{}, c.ended(context.Background(), endedFresh)).GetResources()
}

// status tells what the ledger holds, but for what containers have that have ended, and of devices whose
// owner it does not know, what a view shows.
func (s *state) status(view kubelet.View, ended map[int]bool) *api.StatusResponse {
	answer := &api.StatusResponse{}
	for _, name := range slices.Sorted(maps.Keys(s.ledger.resources)) {
		answer.Resources = append(answer.Resources, s.resourceStatus(s.ledger.resources[name], view, ended))
	}
	if p := s.ledger.livePlan(); p != nil {
		answer.Plan = &api.Plan{Devices: map[string]*api.DeviceList{}, ExpiresUnixNano: p.expires.UnixNano()}
		for name, ids := range p.devices {
			answer.Plan.Devices[name] = &api.DeviceList{Ids: slices.Clone(ids)}
		}
	}
	return answer
}

func (s *state) resourceStatus(r *resource, view kubelet.View, ended map[int]bool) *api.Resource {
	l, partners := s.ledger, s.partners(r.kind, ended)
	m := &api.Resource{Name: r.name, Kind: string(r.kind), Connected: r.joined}
	for _, d := range slices.SortedFunc(maps.Values(r.devices), device.Compare) {
		device := &api.DeviceStatus{Device: d.Encode(), Switch: s.tree.Switch(d.Address)}
		if a := l.holders[r.name][d.ID]; a != nil && !ended[a.id] {
			device.Allocated = true
			if a.owner != nil {
				device.Owner = history.Owner(*a.owner)
			} else if owner, _, shown := view.HolderOf(r.name, []string{d.ID}); shown {
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
	for _, r := range l.ofKind(kind.Other()) {
		for id, d := range r.devices {
			if a := l.holders[r.name][id]; d.Healthy && (l.isFree(r.name, id) || ended[a.id]) {
				switches[s.tree.Switch(d.Address)] = true
			}
		}
	}
	return switches
}

// Check says what is wrong with the ledger, nil where nothing is.
func (c *Coordinator) Check() error { return c.current().ledger.check() }
