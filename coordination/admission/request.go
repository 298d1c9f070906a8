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

// requestBuilder converts a question to a request of package placement. It predicts the NUMA nodes chosen by
// the kubelet's Topology Manager.
type requestBuilder struct {
	*books
	model.TopologyManager
	cpus      kubelet.Reading[cpus]
	question  *api.PreferRequest
	resource  *device.Resource // of the question
	offered   map[int]bool     // NUMA nodes of the offered devices
	container *recipient
	offer     offer
}

// newRequestBuilder returns a builder by what was read. Where the Topology Manager is unknown, the documented
// rule is the best guess, and refuses nobody (findMisalignment).
func newRequestBuilder(
	b *books, o *observation, q *api.PreferRequest, container *recipient, offer offer,
) requestBuilder {
	manager, err := o.manager.Get()
	if err != nil {
		manager = model.TopologyManager{Rule: model.Documented(nil)}
	}
	return requestBuilder{
		b, manager, o.cpus, q, b.resources[q.GetResource()],
		b.resources.Nodes(q.GetResource(), q.GetAvailable()), container, offer,
	}
}

// buildRequest returns the request: the container's whole request if known; else the half in question, with
// the second half as allocated before or as most likely to follow. The remark is for people.
func (b requestBuilder) buildRequest() (request placement.Request, remark string) {
	if b.container.Asker != nil {
		all := b.knownHalves()
		remark = useChosen(b.books, b.container.Asker, all)
		for _, h := range all {
			h.resource.Kind.AddTo(&request, h.half)
		}
	} else {
		first := b.questionHalf()
		b.resource.Kind.AddTo(&request, first)
		b.resource.Kind.Other().AddTo(&request, b.otherHalf(first.Count))
	}
	for _, gpus := range b.resources.OfKind(device.GPU) {
		request.Links = append(request.Links, gpus.Links...)
	}
	if len(b.offered) == 0 && b.manyNodes() {
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
	c := b.container
	nodes, admitted := b.nodes(b.predictNodes)
	for _, name := range slices.Sorted(maps.Keys(c.Asker.Requests)) {
		r := b.resources[name]
		switch r {
		case nil: // of a different plugin
		case b.resource:
			all = append(all, resourceHalf{r, b.offer.half(r, int(b.question.GetSize()))})
		default:
			own := c.Devices[name]
			if len(own) == 0 {
				own = c.Inherits[name]
			}
			half := placement.Half{Count: c.Asker.Requests[name], Held: r.Placed(own)}
			if len(half.Held) > half.Count {
				half.Held, half.Free = nil, half.Held
			} else if admitted {
				half.Free = b.permitted(r, nodes, own, half.Count)
			}
			half.Count = min(half.Count, len(half.Held)+len(half.Free))
			all = append(all, resourceHalf{r, half})
		}
	}
	return all
}

// nodes returns the NUMA nodes for a question: the nodes of the offered devices or, for devices without NUMA
// node (excludeTopology), the predicted nodes. False means that the Topology Manager rejects the container;
// on a node with manyNodes the result is all NUMA nodes: the rule rejects every container there, while the
// kubelet may run with the option max-allowable-numa-nodes.
func (b requestBuilder) nodes(predict func() (model.Mask, bool)) (nodes map[int]bool, admitted bool) {
	if len(b.offered) > 0 {
		return b.offered, true
	}
	predicted, admitted := predict()
	if !admitted && b.manyNodes() {
		return nil, true
	}
	nodes = map[int]bool{}
	for _, n := range predicted.Numbers() {
		nodes[n] = true
	}
	return nodes, admitted
}

// questionHalf returns the half in question: required devices, devices of the same kind from further
// resources (VFs of different rails), and the choice.
func (b requestBuilder) questionHalf() placement.Half {
	half := b.offer.half(b.resource, int(b.question.GetSize()))
	for _, of := range b.resources.OfKind(b.resource.Kind) {
		if of != b.resource {
			held := device.All(of.Select(b.container.Devices[of.Name]))
			half.Held, half.Count = append(half.Held, held.Held...), half.Count+held.Count
		}
	}
	return half
}

// otherHalf returns the container's half of the second kind. For a container without such devices, or with
// inherited devices, the same count as in question is planned: pairs are the common request.
func (b requestBuilder) otherHalf(count int) placement.Half {
	kind := b.resource.Kind.Other()
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

// predictNodes returns the NUMA nodes for a container with known requests. If devices and known CPUs do not
// fit together, the devices alone decide.
func (b requestBuilder) predictNodes() (nodes model.Mask, admitted bool) {
	c := b.container
	if b.ScopePod {
		return b.Rule.Nodes(b.demands(totalRequests(c.Asker.Beside), b.addPods))
	}
	demands := b.demands(c.Asker.Requests, b.addOwn)
	if read, err := b.cpus.Get(); err == nil && c.Asker.CPUs > 0 {
		nodes, admitted = b.Rule.Nodes(append(slices.Clip(demands),
			model.CPUDemand(c.Asker.CPUs, read.nodes, read.free)))
	}
	if !admitted {
		nodes, admitted = b.Rule.Nodes(demands)
	}
	return nodes, admitted
}

// totalRequests returns the devices that the kubelet aligns for a pod as a whole, by resource (scope pod).
func totalRequests(of []intent.Container) map[string]int {
	names := map[string]int{}
	for _, c := range of {
		for name := range c.Requests {
			names[name] = 0
		}
	}
	sorted := slices.Sorted(maps.Keys(names))
	var containers []model.Container
	for _, c := range of {
		one := model.Container{Role: c.Role}
		for name, count := range c.Requests {
			one.Requests = append(one.Requests, model.Request{
				Resource: slices.Index(sorted, name), Count: count,
			})
		}
		containers = append(containers, one)
	}
	for _, r := range model.Total(containers) {
		names[sorted[r.Resource]] = r.Count
	}
	return names
}

// demands returns the device demands of requests, to which add adds the devices that are free for them alone.
func (b requestBuilder) demands(
	requests map[string]int, add func(*model.Demand, *device.Resource),
) (demands []model.Demand) {
	for name, count := range requests {
		if r := b.resources[name]; r != nil {
			demand := b.demand(count, r)
			add(&demand, r)
			demands = append(demands, demand)
		}
	}
	return demands
}

// addOwn adds the devices that the container has, or inherits.
func (b requestBuilder) addOwn(to *model.Demand, r *device.Resource) {
	for _, id := range slices.Concat(b.container.Devices[r.Name], b.container.Inherits[r.Name]) {
		to.Reused.Add(r.Device(id).NUMA)
		to.Free.Add(r.Device(id).NUMA)
	}
}

// addPods adds the devices of the container's pod: before the pod's admission they were free.
func (b requestBuilder) addPods(to *model.Demand, r *device.Resource) {
	for _, d := range r.Ordered() {
		if h := b.holders.Of(r.Name, d.ID); h != nil && h.UID == b.container.Asker.UID && d.Healthy {
			to.Free.Add(d.NUMA)
		}
	}
}

// manyNodes reports whether more NUMA nodes have devices than the Topology Manager supports.
func (b requestBuilder) manyNodes() bool { return b.Rule.TooMany(b.demand(1, b.resources.All()...)) }
