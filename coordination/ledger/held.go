package ledger

import (
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/topology"
)

// Held lists what an allocation holds of a kind, by address and ID.
func (l *Ledger) Held(a *Allocation, kind device.Kind) []device.Device {
	if a == nil {
		return nil
	}
	var held []device.Device
	for name, ids := range a.Devices {
		if r := l.resources[name]; r != nil && r.Kind == kind {
			for id := range ids {
				held = append(held, r.Device(id))
			}
		}
	}
	slices.SortFunc(held, device.Compare)
	return held
}

// Latest lists what the newest Allocate of a resource gave an allocation. It gives all that a container has
// of the resource, also what it takes over from an init container; the rest stays with the pod unused.
func (l *Ledger) Latest(a *Allocation, name string) []device.Device {
	r := l.resources[name]
	if a == nil || r == nil {
		return nil
	}
	var latest []device.Device
	newest := a.NewestOf(name)
	for id, sequence := range a.Devices[name] {
		if sequence == newest {
			latest = append(latest, r.Device(id))
		}
	}
	slices.SortFunc(latest, device.Compare)
	return latest
}

// LatestOf is Latest for all resources of a kind that the recipient asks for, where it is known: what it does
// not ask for is left of its pod's init containers.
func (l *Ledger) LatestOf(a *Allocation, kind device.Kind) []device.Device {
	var latest []device.Device
	for _, r := range l.OfKind(kind) {
		if a != nil && a.Recipient != nil && a.Recipient.Requests[r.Name] == 0 {
			continue
		}
		latest = append(latest, l.Latest(a, r.Name)...)
	}
	return latest
}

// Complete reports whether an allocation has all that its recipient asks for.
func (l *Ledger) Complete(a *Allocation) bool {
	for name, count := range a.Recipient.Requests {
		if l.resources[name] != nil && len(l.Latest(a, name)) != count {
			return false
		}
	}
	return true
}

// SameNodes reports whether devices can belong to the container of an allocation as far as NUMA tells: the
// Topology Manager gives all resources of a container that have TopologyInfo the same nodes, so sets with no
// node in common are of two containers.
func (l *Ledger) SameNodes(a *Allocation, name string, ids []string) bool {
	mine := l.Nodes(name, ids)
	for other, held := range a.Devices {
		theirs := l.Nodes(other, slices.Collect(maps.Keys(held)))
		if len(mine) > 0 && len(theirs) > 0 && !intersect(mine, theirs) {
			return false
		}
	}
	return true
}

func intersect(a, b map[int]bool) bool {
	for n := range a {
		if b[n] {
			return true
		}
	}
	return false
}

// OthersFree reports whether more devices of an allocation's resources are free on its NUMA nodes.
func (l *Ledger) OthersFree(a *Allocation) bool {
	for name, held := range a.Devices {
		nodes := l.Nodes(name, slices.Collect(maps.Keys(held)))
		for _, d := range l.Free(l.resources[name]) {
			if n, known := d.NUMA.Number(); known && nodes[n] {
				return true
			}
		}
	}
	return false
}

// OfAll lists devices of several resources by address, those that are not announced left out.
func (l *Ledger) OfAll(ids kubelet.Devices) []pairs.Device {
	var all []pairs.Device
	for name, list := range ids {
		if r := l.resources[name]; r != nil {
			for _, id := range list {
				all = append(all, pairs.Device{Device: r.Device(id), Resource: name, Kind: r.Kind})
			}
		}
	}
	slices.SortFunc(all, func(a, b pairs.Device) int { return device.Compare(a.Device, b.Device) })
	return all
}

// Addresses lists the cards of a kind, ascending.
func (l *Ledger) Addresses(kind device.Kind) []topology.Address {
	var addresses []topology.Address
	for _, r := range l.OfKind(kind) {
		for _, d := range r.Devices {
			addresses = append(addresses, d.Address)
		}
	}
	slices.SortFunc(addresses, topology.Address.Compare)
	return slices.Compact(addresses)
}

// Holds reports whether a view shows a device of a resource that the plugins offer with a container that is
// accepted.
func (l *Ledger) Holds(view kubelet.View, accepted func(kubelet.Container) bool) bool {
	for container, devices := range view.Containers {
		for name, ids := range devices {
			if accepted(container) && l.resources[name] != nil && len(ids) > 0 {
				return true
			}
		}
	}
	return false
}
