// SPDX-License-Identifier: Apache-2.0

// Package offer models a machine as the plugins offer it to the kubelet: devices, and the coordinator's view
// of them at a container's request.
package offer

import (
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Device is a GPU or VF as announced to the kubelet.
type Device struct {
	placement.Device
	NUMA     topology.NUMANode // unknown also for a pool with excludeTopology
	Used     bool              // by a container
	Resource string            // of a VF: the name of its pool; "" if unknown
}

// New returns a free device.
func New(id string, address topology.Address, numa topology.NUMANode) Device {
	return Device{Device: placement.Device{ID: id, Address: address}, NUMA: numa}
}

// Views are views of a machine's devices for requests of VFs.
type Views struct {
	All   *devicemanager.View   // all VFs are of one resource
	pools []*devicemanager.View // with the VFs of one pool, by its name
}

// NewViews returns the coordinator's views of a machine's devices. All GPUs are of one resource.
func NewViews(links []topology.Link, gpus, vfs []Device) Views {
	v := Views{All: newView(links, gpus, vfs)}
	pools := Pools(vfs)
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		v.pools = append(v.pools, newView(links, gpus, pools[name]))
	}
	return v
}

// Pools returns VFs by the name of their pool.
func Pools(vfs []Device) map[string][]Device {
	pools := map[string][]Device{}
	for _, d := range vfs {
		pools[d.Resource] = append(pools[d.Resource], d)
	}
	return pools
}

// For returns the views for a container's requests: of each pool with as many free VFs, since the kubelet
// takes the VFs of a request from one pool. Without such a pool it is the view of all VFs, for requests of
// several.
func (v Views) For(requests devicemanager.Requests) (views []*devicemanager.View) {
	for _, view := range v.pools {
		short := func(r devicemanager.Request) bool {
			return view.Free.Common(view.Node.Resources[r.Resource].All) < r.Count
		}
		if !slices.ContainsFunc(requests, short) {
			views = append(views, view)
		}
	}
	if len(views) == 0 {
		return []*devicemanager.View{v.All}
	}
	return views
}

// Nodes returns the NUMA nodes for a container, of the first pool that serves its requests, and whether the
// kubelet admits the container, from whichever of the pools.
func (v Views) Nodes(
	rule hints.Rule, requests devicemanager.Requests, more ...hints.Demand,
) (nodes hints.Mask, admitted bool) {
	for i, view := range v.For(requests) {
		on, admits := rule.Nodes(append(view.Demands(requests), more...))
		if !admits {
			return 0, false
		}
		if i == 0 {
			nodes = on
		}
	}
	return nodes, true
}

// newView returns a view of devices. All GPUs are of one resource, and all VFs.
func newView(links []topology.Link, gpus, vfs []Device) *devicemanager.View {
	var used []string
	announced := make([]devicemanager.Announcement, len(devicemanager.Kinds))
	for kind, list := range [...][]Device{gpus, vfs} {
		announced[kind].Kind = devicemanager.Kind(kind)
		for _, d := range list {
			told := devicemanager.Device{Device: d.Device, NUMA: d.NUMA}
			announced[kind].Devices = append(announced[kind].Devices, told)
			if d.Used {
				used = append(used, d.ID)
			}
		}
	}
	node := devicemanager.New(announced)
	v := &devicemanager.View{Node: node, Links: links, Taken: node.Select(used)}
	v.Free = node.OfKind[devicemanager.GPU].Clone()
	v.Free.Include(node.OfKind[devicemanager.VF])
	v.Free.Exclude(v.Taken)
	return v
}

// Requests returns the requests of a container.
func Requests(gpus, vfs int) devicemanager.Requests {
	return devicemanager.Requests{
		{Resource: int(devicemanager.GPU), Count: gpus}, {Resource: int(devicemanager.VF), Count: vfs},
	}
}
