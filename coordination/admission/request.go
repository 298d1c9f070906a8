// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// requestBuilder converts a question to a request of package placement.
type requestBuilder struct {
	prediction
	question  *api.PreferRequest
	container *recipient
	offer     offer
}

// buildRequest returns the request: the container's whole request if known; else the half in question, with
// the second half as allocated before or as most likely to follow. The remark is for people.
func (b requestBuilder) buildRequest() (request placement.Request, remark string) {
	r := b.resources[b.question.GetResource()]
	if b.container.Asker != nil {
		all := b.knownHalves()
		remark = useChosen(b.books, b.container.Asker, all)
		for _, h := range all {
			h.resource.Kind.AddTo(&request, h.half)
		}
	} else {
		first := b.questionHalf()
		r.Kind.AddTo(&request, first)
		r.Kind.Other().AddTo(&request, b.otherHalf(first.Count))
	}
	for _, gpus := range b.resources.OfKind(device.GPU) {
		request.Links = append(request.Links, gpus.Links...)
	}
	if len(b.resources.Nodes(b.question.GetResource(), b.question.GetAvailable())) == 0 && b.manyNodes() {
		remark = strings.TrimPrefix(fmt.Sprintf("%s; the kubelet's NUMA nodes are not predicted: more than %d "+
			"have devices", remark, cmp.Or(b.Rule.MaxNodes, model.MaxNodes)), "; ")
	}
	request.Spare.GPUs, request.Taken.GPUs = b.spareAndTaken(device.GPU, b.container)
	request.Spare.VFs, request.Taken.VFs = b.spareAndTaken(device.VF, b.container)
	return request, remark
}

// knownHalves returns a half for every resource requested by a known container. The question's half has the
// offered devices; further halves have the free devices on the NUMA nodes that the kubelet will offer.
// Devices of the container, and of init containers before, are held; if more than requested, the kubelet
// takes any.
func (b requestBuilder) knownHalves() []resourceHalf {
	var all []resourceHalf
	q, c := b.question, b.container
	nodes, admitted := b.nodes(func() (model.Mask, bool) { return b.predictNodes(c) })
	for _, name := range slices.Sorted(maps.Keys(c.Asker.Requests)) {
		r := b.resources[name]
		switch {
		case r == nil: // of a different plugin
		case name == q.GetResource():
			all = append(all, resourceHalf{r, b.offer.half(r, int(q.GetSize()))})
		default:
			half := placement.Half{Count: c.Asker.Requests[name], Held: ownDevices(c, r)}
			if len(half.Held) > half.Count {
				half.Held, half.Free = nil, half.Held
			} else if admitted {
				half.Free = b.permitted(r, nodes, half.Held, half.Count)
			}
			half.Count = min(half.Count, len(half.Held)+len(half.Free))
			all = append(all, resourceHalf{r, half})
		}
	}
	return all
}

// nodes returns the same as nodesOf, but all NUMA nodes on a node with manyNodes: the rule rejects every
// container there, while the kubelet may run with the option max-allowable-numa-nodes.
func (b requestBuilder) nodes(predict func() (model.Mask, bool)) (nodes map[int]bool, admitted bool) {
	nodes, admitted = b.nodesOf(b.question, predict)
	if !admitted && b.manyNodes() {
		return nil, true
	}
	return nodes, admitted
}

// questionHalf returns the half in question: required devices, devices of the same kind from further
// resources (VFs of different rails), and the choice.
func (b requestBuilder) questionHalf() placement.Half {
	r := b.resources[b.question.GetResource()]
	half := b.offer.half(r, int(b.question.GetSize()))
	for _, of := range b.resources.OfKind(r.Kind) {
		if of != r {
			held := device.All(of.Select(b.container.Devices[of.Name]))
			half.Held, half.Count = append(half.Held, held.Held...), half.Count+held.Count
		}
	}
	return half
}

// otherHalf returns the container's half of the second kind. For a container without such devices, or with
// inherited devices, the same count as in question is planned: pairs are the common request.
func (b requestBuilder) otherHalf(count int) placement.Half {
	kind := b.resources[b.question.GetResource()].Kind.Other()
	held := b.resources.Held(b.container.Devices, kind)
	if len(held) > 0 {
		return device.All(held)
	}
	half := device.All(b.resources.Held(b.container.Inherits, kind))
	half.Free = b.expectedFree(kind, count-half.Count)
	half.Count = max(half.Count, min(count, half.Count+len(half.Free)))
	return half
}

// expectedFree returns the free devices of a kind that the kubelet will offer the container.
func (b requestBuilder) expectedFree(kind device.Kind, count int) []placement.Device {
	of := b.resources.OfKind(kind)
	nodes, admitted := b.nodes(func() (model.Mask, bool) {
		return b.Rule.Nodes([]model.Demand{b.demand(count, of...)})
	})
	if !admitted {
		return nil
	}
	var free []placement.Device
	for _, r := range of {
		free = append(free, b.permitted(r, nodes, nil, count)...)
	}
	return free
}

// cpus are the node's CPUs under the kubelet's static CPU policy: all CPUs by NUMA node, and the free
// exclusive CPUs.
type cpus struct {
	nodes map[int]topology.CPUSet
	free  topology.CPUSet
}

// prediction predicts the NUMA nodes chosen by the kubelet's Topology Manager.
type prediction struct {
	*books
	model.TopologyManager
	cpus kubelet.Reading[cpus]
}

// newPrediction returns a prediction by what was read. Where the Topology Manager is unknown, the documented
// rule is the best guess, and refuses nobody (findMisalignment).
func newPrediction(b *books, o *observation) prediction {
	manager, err := o.manager.Get()
	if err != nil {
		manager = model.TopologyManager{Rule: model.Documented(nil)}
	}
	return prediction{b, manager, o.cpus}
}

// nodesOf returns the NUMA nodes for a question: the nodes of the offered devices or, for devices without
// NUMA node (excludeTopology), the predicted nodes. False means that the Topology Manager will reject the
// container.
func (p prediction) nodesOf(
	q *api.PreferRequest, predict func() (model.Mask, bool),
) (nodes map[int]bool, admitted bool) {
	nodes = p.resources.Nodes(q.GetResource(), q.GetAvailable())
	if len(nodes) > 0 {
		return nodes, true
	}
	predicted, admitted := predict()
	for _, n := range predicted.Numbers() {
		nodes[n] = true
	}
	return nodes, admitted
}

// predictNodes returns the NUMA nodes for a container with known requests. If devices and known CPUs do not
// fit together, the devices alone decide.
func (p prediction) predictNodes(c *recipient) (nodes model.Mask, admitted bool) {
	if p.ScopePod {
		return p.Rule.Nodes(p.podDemands(c))
	}
	demands := p.deviceDemands(c)
	if read, err := p.cpus.Get(); err == nil && c.Asker.CPUs > 0 {
		nodes, admitted = p.Rule.Nodes(append(slices.Clip(demands),
			model.CPUDemand(c.Asker.CPUs, read.nodes, read.free)))
	}
	if !admitted {
		nodes, admitted = p.Rule.Nodes(demands)
	}
	return nodes, admitted
}

// deviceDemands returns the device demands of a container with known requests.
func (p prediction) deviceDemands(c *recipient) []model.Demand {
	var demands []model.Demand
	for name, count := range c.Asker.Requests {
		r := p.resources[name]
		if r == nil {
			continue
		}
		demand := p.demand(count, r)
		for _, id := range slices.Concat(c.Devices[name], c.Inherits[name]) {
			demand.Reused.Add(r.Device(id).NUMA)
			demand.Free.Add(r.Device(id).NUMA)
		}
		demands = append(demands, demand)
	}
	return demands
}

// podDemands returns the device demands of the pod of a container with known requests, as before the pod's
// admission: what its containers hold was free then.
func (p prediction) podDemands(c *recipient) []model.Demand {
	var demands []model.Demand
	for name, count := range intent.Total(c.Asker.Beside) {
		r := p.resources[name]
		if r == nil {
			continue
		}
		demand := p.demand(count, r)
		for _, d := range r.Ordered() {
			if h := p.held.Of(name, d.ID); h != nil && h.UID == c.Asker.UID && d.Healthy {
				demand.Free.Add(d.NUMA)
			}
		}
		demands = append(demands, demand)
	}
	return demands
}

// manyNodes reports whether more NUMA nodes have devices than the Topology Manager supports.
func (p prediction) manyNodes() bool { return p.Rule.TooMany(p.demand(1, p.resources.All()...)) }
