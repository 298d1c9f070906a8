// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"slices"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// View holds the devices of a node at the time of a container's request. It builds the placement request for
// a GetPreferredAllocation of the kubelet: the kubelet names one resource, the placement request contains all
// resources that the container requests.
type View struct {
	Node      *Devices
	Links     []topology.Link
	Kubelet   model.TopologyManager // its Topology Manager; the documented one where it is unknown
	Free      Set                   // healthy, and held by no container
	Taken     Set                   // held by other containers
	Allocated Set                   // held by the container
	Left      Set                   // left by init containers of the pod for reuse
}

// Half is the request for one resource.
type Half struct {
	model.Request
	Held, Free Set // see placement.Half
}

// Halves returns the requests of a container for a question of the kubelet. The question lists the held and
// free devices of its resource. For other resources, Halves takes the devices that the container has or
// reuses as held, and the devices that the kubelet will probably offer as free. Without a request for
// exclusive CPUs, cpus is nil.
func (v *View) Halves(q *Question, requests model.Requests, cpus *model.Demand) []Half {
	nodes, admitted := v.containerNodes(q, requests, cpus)
	halves := make([]Half, 0, len(requests))
	for _, r := range requests {
		switch {
		case r.Resource == q.Resource:
			r.Count = q.Size
			halves = append(halves, Half{r, q.Must, q.Free})
		case r.Count > 0:
			halves = append(halves, v.newHalf(r, nodes, admitted))
		}
	}
	return halves
}

// Expected returns the requests of a container without devices, with free devices of the NUMA nodes. An empty
// mask means all nodes.
func (v *View) Expected(requests model.Requests, nodes model.Mask) []Half {
	halves := make([]Half, 0, len(requests))
	for _, r := range requests {
		if r.Count > 0 {
			halves = append(halves, v.newHalf(r, nodes, true))
		}
	}
	return halves
}

// newHalf returns the request for a resource that is not in the question. If the container has more devices
// than requested, the kubelet may take any of these, so all count as free.
func (v *View) newHalf(r model.Request, nodes model.Mask, admitted bool) Half {
	h := Half{Request: r, Held: v.heldDevices(r)}
	switch n := h.Held.Len(); {
	case n > r.Count:
		h.Held, h.Free = v.Node.NewSet(), h.Held
	case admitted:
		h.Free = v.Node.Resources[r.Resource].Available(v.Free, nodes)
	}
	h.Count = min(h.Count, h.Held.Len()+h.Free.Len())
	return h
}

// heldDevices returns the container's devices of a resource; if none, the devices left by init containers.
func (v *View) heldDevices(r model.Request) Set {
	all := v.Node.Resources[r.Resource].All
	if allocated := all.Intersection(v.Allocated); allocated.Len() > 0 {
		return allocated
	}
	return all.Intersection(v.Left)
}

// containerNodes returns the NUMA nodes of the container's devices: the nodes of the offered devices or, for
// devices without NUMA node (excludeTopology), the nodes that the policy chooses for this container alone. If
// no nodes have both devices and CPUs, containerNodes ignores the CPUs. It returns false if the policy
// rejects the container, and all nodes where the kubelet's nodes are not predicted, because more have devices
// than the Topology Manager supports.
func (v *View) containerNodes(
	q *Question, requests model.Requests, cpus *model.Demand,
) (nodes model.Mask, admitted bool) {
	nodes = v.Node.NUMANodes(q.Available())
	if nodes != 0 {
		return nodes, true
	}
	if v.Kubelet.ScopePod {
		return q.Nodes, true // of the whole pod, which the coordinator knows
	}
	demands := v.Demands(requests)
	if v.Kubelet.Rule.TooMany(demands...) {
		return 0, true
	}
	if cpus != nil {
		nodes, admitted = v.Kubelet.Rule.Nodes(append(slices.Clip(demands), *cpus))
		if admitted {
			return nodes, true
		}
	}
	return v.Kubelet.Rule.Nodes(demands)
}

// Demands returns the requests of a container in the form of the kubelet's Topology Manager.
func (v *View) Demands(requests model.Requests) []model.Demand {
	demands := make([]model.Demand, 0, len(requests))
	for _, r := range requests {
		if r.Count > 0 {
			demands = append(demands, v.Node.Resources[r.Resource].Demand(r.Count, v.Free, v.heldDevices(r)))
		}
	}
	return demands
}

// Placement returns the placement request for the halves of a container.
func (v *View) Placement(halves []Half) placement.Request {
	request := placement.Request{Links: v.Links, Spare: v.Node.Split(v.Free), Taken: v.Node.Split(v.Taken)}
	for _, h := range halves {
		half := placement.Half{Count: h.Count, Held: v.Node.Devices(h.Held), Free: v.Node.Devices(h.Free)}
		if v.Node.Resources[h.Resource].Kind == model.GPU {
			request.GPUs = append(request.GPUs, half)
		} else {
			request.VFs = append(request.VFs, half)
		}
	}
	return request
}

// Switches holds the devices of each kind for each switch with both GPUs and VFs.
type Switches [][2]Set

// Pairs returns the number of same-switch pairs that a set of devices can form.
func (s Switches) Pairs(of Set) int {
	sum := 0
	for i := range s {
		sum += min(of.Common(s[i][model.GPU]), of.Common(s[i][model.VF]))
	}
	return sum
}

// Stranded returns the number of pairs that free devices cannot form on a common switch.
func (s Switches) Stranded(n *Devices, free Set) int {
	pairs := min(free.Common(n.OfKind[model.GPU]), free.Common(n.OfKind[model.VF]))
	return pairs - s.Pairs(free)
}
