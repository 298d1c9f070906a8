package main

import (
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// question is what plan is asked.
type question struct {
	gpus, vfs uint
	used      []string
	config    string
}

// refused is the note on a request that policy restricted does not admit.
const refused = "under policy restricted the kubelet refuses this: no set of NUMA nodes is as small as it can be for GPUs and VFs alike; " +
	"VFs without NUMA nodes (excludeTopology) are admitted"

// answer plans as the coordinator does when the kubelet asks it.
func (q *question) answer(from *source) (*plan, []string, error) {
	n, err := readNode(from)
	if err != nil {
		return nil, nil, err
	}
	gpus := n.gpuDevices()
	vfs, notes, err := q.vfDevices(n, from)
	if err != nil {
		return nil, nil, err
	}
	if err := q.mark(gpus, vfs); err != nil {
		return nil, nil, err
	}
	if uint(gpus.free()) < q.gpus || uint(vfs.free()) < q.vfs {
		return nil, nil, fmt.Errorf("choose %d GPUs and %d VFs: %d GPUs and %d VFs are free", q.gpus, q.vfs, gpus.free(), vfs.free())
	}
	mask, admitted := hints.Restricted.Nodes(gpus.demand(q.gpus), vfs.demand(q.vfs))
	nodes := mask.Numbers()
	r := placement.Request{Links: n.links}
	r.GPUs, r.Spare.GPUs, r.Taken.GPUs = gpus.half(q.gpus, nodes)
	r.VFs, r.Spare.VFs, r.Taken.VFs = vfs.half(q.vfs, nodes)
	choice, err := placement.Choose(n.tree, r)
	if err != nil {
		return nil, nil, err
	}
	p := planOf(choice, nodes)
	if !admitted {
		p.Note = refused
	}
	return p, slices.Concat(n.notes, notes), nil
}

func planOf(c placement.Choice, nodes []int) *plan {
	p := &plan{GPUs: []string{}, VFs: []string{}, Pairs: []pairEntry{}, Nodes: []int{}, Reason: c.Reason}
	p.Nodes = append(p.Nodes, nodes...)
	for _, d := range c.GPUs {
		p.GPUs = append(p.GPUs, d.ID)
	}
	for _, d := range c.VFs {
		p.VFs = append(p.VFs, d.ID)
	}
	for _, pair := range c.Pairs {
		p.Pairs = append(p.Pairs, pairEntry{pair.GPU.ID, pair.VF.ID, pair.Distance.Level, pair.Distance.Bridges})
	}
	return p
}

// device is a GPU or VF as the kubelet would know it.
type device struct {
	placement.Device
	numa topology.NUMANode
	used bool
}

// devices are all GPUs, or all VFs.
type devices []device

func (list devices) free() int {
	free := 0
	for _, d := range list {
		if !d.used {
			free++
		}
	}
	return free
}

// demand is what the Topology Manager sees of the list.
func (list devices) demand(count uint) hints.Demand {
	demand := hints.Demand{Count: int(count)}
	for _, d := range list {
		demand.All.Add(d.numa)
		if !d.used {
			demand.Free.Add(d.numa)
		}
	}
	return demand
}

// half is the list's side of the request: what the kubelet would offer on these NUMA nodes, and apart from it what is free
// elsewhere and what is used. Devices without a NUMA node are offered whatever the nodes; with no nodes all are.
func (list devices) half(count uint, nodes []int) (halves []placement.Half, spare, used []placement.Device) {
	half := placement.Half{Count: int(count)}
	for _, d := range list {
		number, known := d.numa.Number()
		switch {
		case d.used:
			used = append(used, d.Device)
		case known && len(nodes) > 0 && !slices.Contains(nodes, number):
			spare = append(spare, d.Device)
		default:
			half.Free = append(half.Free, d.Device)
		}
	}
	return []placement.Half{half}, spare, used
}
