package coordination

import (
	"context"
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// newestPods asks the kubelet about the pods of which one got the newest Allocate, where no look has shown yet which. It is asked
// with Get, which frees nothing; where that fails, whose the newest devices are stays open.
func (c *coordinator) newestPods(ctx context.Context) kubelet.View {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var pods []kubelet.Pod
	c.locked(func() {
		if newest := c.ledger.newest(); newest != nil && newest.owner == nil {
			pods = newest.candidates[:min(len(newest.candidates), maxSuspects)]
		}
	})
	all := kubelet.View{Containers: map[kubelet.Container]kubelet.Devices{}}
	for _, pod := range pods {
		if view, err := c.get(ctx, pod); err == nil {
			maps.Copy(all.Containers, view.Containers)
		}
	}
	return all
}

// status tells what the ledger holds, but for what containers have that have ended, and of devices whose owner it does not know, what a
// view shows.
func (c *coordinator) status(view kubelet.View, ended map[*allocation]bool) *api.StatusResponse {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := &api.StatusResponse{}
	for _, name := range slices.Sorted(maps.Keys(c.ledger.resources)) {
		answer.Resources = append(answer.Resources, c.resourceStatus(c.ledger.resources[name], view, ended))
	}
	if p := c.ledger.livePlan(); p != nil {
		answer.Plan = &api.Plan{Devices: map[string]*api.DeviceList{}, ExpiresUnixNano: p.expires.UnixNano()}
		for name, ids := range p.devices {
			answer.Plan.Devices[name] = &api.DeviceList{Ids: slices.Clone(ids)}
		}
	}
	return answer
}

func (c *coordinator) resourceStatus(r *resource, view kubelet.View, ended map[*allocation]bool) *api.Resource {
	l, partners := c.ledger, c.partners(r.kind, ended)
	m := &api.Resource{Name: r.name, Kind: string(r.kind), Connected: r.joined}
	for _, d := range slices.SortedFunc(maps.Values(r.devices), compareDevices) {
		device := &api.DeviceStatus{Device: encodeDevice(d), Switch: switchOf(c.tree, d.Address)}
		if a := l.holders[r.name][d.ID]; a != nil && !ended[a] {
			device.Allocated = true
			if a.owner != nil {
				device.Owner = encodeOwner(*a.owner)
			} else if owner, _, shown := view.HolderOf(r.name, []string{d.ID}); shown {
				device.Owner = encodeOwner(owner)
			}
		}
		device.Stranded = d.Healthy && !device.Allocated && !partners[device.Switch]
		m.Devices = append(m.Devices, device)
	}
	return m
}

// partners are the switches with a free device of the other kind.
func (c *coordinator) partners(kind Kind, ended map[*allocation]bool) map[string]bool {
	l, switches := c.ledger, map[string]bool{}
	for _, r := range l.ofKind(kind.other()) {
		for id, d := range r.devices {
			if a := l.holders[r.name][id]; d.Healthy && (l.isFree(r.name, id) || ended[a]) {
				switches[switchOf(c.tree, d.Address)] = true
			}
		}
	}
	return switches
}
