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
		answer.Resources = append(answer.Resources, c.resourceStatus(c.ledger.resources[name]))
	}
	if p := c.ledger.livePlan(); p != nil {
		answer.Plan = &api.Plan{Devices: map[string]*api.DeviceList{}, ExpiresUnixNano: p.expires.UnixNano()}
		for name, ids := range p.devices {
			answer.Plan.Devices[name] = &api.DeviceList{Ids: slices.Clone(ids)}
		}
	}
	return answer
}

func (c *coordinator) resourceStatus(r *resource) *api.Resource {
	l, partners := c.ledger, c.partners(r.kind)
	m := &api.Resource{Name: r.name, Kind: string(r.kind), Connected: r.joined}
	for _, d := range slices.SortedFunc(maps.Values(r.devices), compareDevices) {
		device := &api.DeviceStatus{Device: encodeDevice(d), Switch: switchOf(c.tree, d.Address)}
		if a := l.holders[r.name][d.ID]; a != nil {
			device.Allocated = true
			if a.owner != nil {
				device.Owner = encodeOwner(*a.owner)
			}
		}
		device.Stranded = d.Healthy && !device.Allocated && !partners[device.Switch]
		m.Devices = append(m.Devices, device)
	}
	return m
}

// partners are the switches with a free device of the other kind.
func (c *coordinator) partners(kind Kind) map[string]bool {
	other := GPU
	if kind == GPU {
		other = VF
	}
	switches := map[string]bool{}
	for _, r := range c.ledger.ofKind(other) {
		for _, d := range c.ledger.free(r) {
			switches[switchOf(c.tree, d.Address)] = true
		}
	}
	return switches
}
