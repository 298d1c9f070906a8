package coordination

import (
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/api"
)

// status tells what the ledger holds.
func (c *coordinator) status() *api.StatusResponse {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := &api.StatusResponse{}
	for _, name := range slices.Sorted(maps.Keys(c.ledger.resources)) {
		answer.Resources = append(answer.Resources, c.ledger.resourceStatus(c.ledger.resources[name]))
	}
	if p := c.ledger.livePlan(); p != nil {
		answer.Plan = &api.Plan{Devices: map[string]*api.DeviceList{}, ExpiresUnixNano: p.expires.UnixNano()}
		for name, ids := range p.devices {
			answer.Plan.Devices[name] = &api.DeviceList{Ids: slices.Clone(ids)}
		}
	}
	return answer
}

func (l *ledger) resourceStatus(r *resource) *api.Resource {
	m := &api.Resource{Name: r.name, Kind: string(r.kind), Connected: r.joined}
	for _, d := range slices.SortedFunc(maps.Values(r.devices), compareDevices) {
		device := &api.DeviceStatus{Device: encodeDevice(d)}
		if a := l.holders[r.name][d.ID]; a != nil {
			device.Allocated = true
			if a.owner != nil {
				device.Owner = &api.Owner{Namespace: a.owner.Namespace, Pod: a.owner.Pod.Name, Container: a.owner.Name}
			}
		}
		m.Devices = append(m.Devices, device)
	}
	return m
}
