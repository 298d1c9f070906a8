// Package offer is what the kubelet is offered: devices, and how it and the placement look at them when a
// container asks for some.
package offer

import (
	"slices"

	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Device is a GPU or VF as the kubelet is told of it.
type Device struct {
	placement.Device
	NUMA topology.NUMANode // unknown too where the pool has excludeTopology
	Used bool              // a container has it
}

// New is a device that no container has.
func New(id string, address topology.Address, numa topology.NUMANode) Device {
	return Device{Device: placement.Device{ID: id, Address: address}, NUMA: numa}
}

// Demand is what the Topology Manager sees of a resource of which so many are wanted.
func Demand(list []Device, count int) hints.Demand {
	demand := hints.Demand{Count: count}
	for _, d := range list {
		demand.All.Add(d.NUMA)
		if !d.Used {
			demand.Free.Add(d.NUMA)
		}
	}
	return demand
}

// Half is the resource's side of the request: what the kubelet would offer on these NUMA nodes, and apart
// from it what is free elsewhere and what is used. Devices without a NUMA node are offered whatever the
// nodes; with no nodes all are.
func Half(list []Device, count int, nodes []int) (halves []placement.Half, spare, used []placement.Device) {
	half := placement.Half{Count: count}
	for _, d := range list {
		number, known := d.NUMA.Number()
		switch {
		case d.Used:
			used = append(used, d.Device)
		case known && len(nodes) > 0 && !slices.Contains(nodes, number):
			spare = append(spare, d.Device)
		default:
			half.Free = append(half.Free, d.Device)
		}
	}
	return []placement.Half{half}, spare, used
}
