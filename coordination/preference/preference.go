// SPDX-License-Identifier: Apache-2.0

// Package preference makes the request that placement gets when the kubelet asks a plugin for a preferred
// allocation (GetPreferredAllocation): all that the container requests, although the kubelet asks for one
// resource. It is a pure function of a [View], what is known of the node's devices at that moment.
package preference

import (
	"slices"

	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// View is the devices of a node when a container requests some.
type View struct {
	Node  *devicemanager.Node
	Links []topology.Link
	Free  devicemanager.Set // healthy, and held by no container
	Taken devicemanager.Set // held by other containers
	Given devicemanager.Set // held by the container
	Left  devicemanager.Set // left by init containers of the pod
}

// Half is the request of one resource.
type Half struct {
	devicemanager.Request
	Held, Free devicemanager.Set // see placement.Half
}

// Halves returns the requests of a container when the kubelet asks for one of the resources. The devices of
// that one are those of the question. Of another resource they are those that the container has or takes over
// and those that the kubelet will probably offer. CPUs are the demand for exclusive CPUs, nil for none.
func (v *View) Halves(q *devicemanager.Question, requests devicemanager.Requests, cpus *hints.Demand) []Half {
	nodes, admitted := v.nodes(q, requests, cpus)
	halves := make([]Half, 0, len(requests))
	for _, r := range requests {
		switch {
		case r.Resource == q.Resource:
			r.Count = q.Size
			halves = append(halves, Half{r, q.Must, q.Free})
		case r.Count > 0:
			halves = append(halves, v.half(r, nodes, admitted))
		}
	}
	return halves
}

// Expected returns the requests of a container that has no devices yet on these NUMA nodes; no nodes stand
// for all of them.
func (v *View) Expected(requests devicemanager.Requests, nodes hints.Mask) []Half {
	halves := make([]Half, 0, len(requests))
	for _, r := range requests {
		if r.Count > 0 {
			halves = append(halves, v.half(r, nodes, true))
		}
	}
	return halves
}

// half returns the request of a resource that the kubelet does not ask for now. If the container has more
// devices than it requests, the kubelet takes any of them.
func (v *View) half(r devicemanager.Request, nodes hints.Mask, admitted bool) Half {
	h := Half{Request: r, Held: v.held(r)}
	switch n := h.Held.Len(); {
	case n > r.Count:
		h.Held, h.Free = v.Node.NewSet(), h.Held
	case admitted:
		h.Free = v.Node.Resources[r.Resource].Available(v.Free, nodes)
	}
	h.Count = min(h.Count, h.Held.Len()+h.Free.Len())
	return h
}

// held returns the devices of a resource that the container has, or else takes over from init containers.
func (v *View) held(r devicemanager.Request) devicemanager.Set {
	all := v.Node.Resources[r.Resource].All
	if given := all.Intersection(v.Given); given.Len() > 0 {
		return given
	}
	return all.Intersection(v.Left)
}

// nodes returns the NUMA nodes on which the container gets its devices: those of the offered devices or, if
// these have none (excludeTopology), those that policy restricted chooses; false if it refuses the container.
// If no nodes have both the devices and the CPUs, the devices decide.
func (v *View) nodes(
	q *devicemanager.Question, requests devicemanager.Requests, cpus *hints.Demand,
) (nodes hints.Mask, admitted bool) {
	if nodes = v.Node.NUMANodes(q.Available()); nodes != 0 {
		return nodes, true
	}
	demands := v.Demands(requests)
	if cpus != nil {
		if nodes, admitted = hints.Restricted.Nodes(append(slices.Clip(demands), *cpus)...); admitted {
			return nodes, true
		}
	}
	return hints.Restricted.Nodes(demands...)
}

// Demands returns the requests of a container as the Topology Manager sees them.
func (v *View) Demands(requests devicemanager.Requests) []hints.Demand {
	demands := make([]hints.Demand, 0, len(requests))
	for _, r := range requests {
		if r.Count > 0 {
			demands = append(demands, v.Node.Resources[r.Resource].Demand(r.Count, v.Free, v.held(r)))
		}
	}
	return demands
}

// Placement returns the request that placement gets for some halves.
func (v *View) Placement(halves []Half) placement.Request {
	request := placement.Request{Links: v.Links, Spare: v.devices(v.Free), Taken: v.devices(v.Taken)}
	for _, h := range halves {
		half := placement.Half{Count: h.Count, Held: v.Node.Devices(h.Held), Free: v.Node.Devices(h.Free)}
		if v.Node.Resources[h.Resource].Kind == devicemanager.GPU {
			request.GPUs = append(request.GPUs, half)
		} else {
			request.VFs = append(request.VFs, half)
		}
	}
	return request
}

func (v *View) devices(of devicemanager.Set) placement.Devices {
	return placement.Devices{
		GPUs: v.Node.Devices(of.Intersection(v.Node.OfKind[devicemanager.GPU])),
		VFs:  v.Node.Devices(of.Intersection(v.Node.OfKind[devicemanager.VF])),
	}
}
