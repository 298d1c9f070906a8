// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"slices"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
)

// cpus are the node's CPUs under the kubelet's static CPU policy: all CPUs by NUMA node, and the free
// exclusive CPUs.
type cpus struct {
	nodes map[int]topology.CPUSet
	free  topology.CPUSet
}

// prediction predicts the NUMA nodes chosen by the kubelet's Topology Manager.
type prediction struct {
	*books
	devicemanager.Kubelet
	cpus kubelet.Reading[cpus]
}

// newPrediction returns a prediction by what was read. Where the Topology Manager is unknown, the documented
// rule is the best guess, and refuses nobody (findMisalignment).
func newPrediction(b *books, o *observation) prediction {
	manager, err := o.manager.Get()
	if err != nil {
		manager = devicemanager.Kubelet{Rule: model.Documented(nil)}
	}
	return prediction{b, manager, o.cpus}
}

// nodesOf returns the NUMA nodes for a question: the nodes of the offered devices or, for devices without
// NUMA node (excludeTopology), the predicted nodes. False means that the Topology Manager will reject the
// container.
func (p prediction) nodesOf(
	q asking.Question, predict func() (hints.Mask, bool),
) (nodes map[int]bool, admitted bool) {
	nodes = p.resources.Nodes(q.Resource, q.Available)
	if len(nodes) > 0 {
		return nodes, true
	}
	predicted, admitted := predict()
	for _, n := range predicted.Numbers() {
		nodes[n] = true
	}
	return nodes, admitted
}

// predict returns the NUMA nodes for a container with known requests. If devices and known CPUs do not fit
// together, the devices alone decide.
func (p prediction) predict(c *asking.Container) (nodes hints.Mask, admitted bool) {
	if p.ScopePod {
		return p.Rule.Nodes(p.podDemands(c))
	}
	demands := p.demands(c)
	if read, err := p.cpus.Get(); err == nil && c.Asker.CPUs > 0 {
		nodes, admitted = p.Rule.Nodes(append(slices.Clip(demands),
			hints.CPUs(c.Asker.CPUs, read.nodes, read.free)))
	}
	if !admitted {
		nodes, admitted = p.Rule.Nodes(demands)
	}
	return nodes, admitted
}

// demands returns the device demands of a container with known requests.
func (p prediction) demands(c *asking.Container) []hints.Demand {
	var demands []hints.Demand
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
func (p prediction) podDemands(c *asking.Container) []hints.Demand {
	var demands []hints.Demand
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
