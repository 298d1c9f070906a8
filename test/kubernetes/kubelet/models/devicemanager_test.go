// SPDX-License-Identifier: Apache-2.0

package models_test

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
)

// replay admits a pod on the product's device manager, after the real one.
type replay struct {
	kubelet *real
	*devicemanager.Admission
	containers []container // of the model
	current    int
}

// managed returns the admission of a pod by the product's device manager; false for a rejection.
func (r *real) managed(pod *v1.Pod, held map[string][]string) ([]container, bool) {
	var announced []model.Resource
	for _, resource := range r.world.resources {
		a := model.Resource{Name: resource.Name, Kind: model.VF}
		if resource.Kind == device.GPU {
			a.Kind = model.GPU
		}
		for _, d := range resource.Devices {
			a.Devices = append(a.Devices, model.Device{Device: d.Placed(), NUMA: d.NUMA})
		}
		announced = append(announced, a)
	}
	n := devicemanager.NewDevices(announced)
	p := &replay{kubelet: r, containers: make([]container, len(node.Containers(pod)))}
	p.Admission = &devicemanager.Admission{
		Node: n, Kubelet: model.TopologyManager{Rule: r.world.rule(), ScopePod: r.world.scope == "pod"},
		Others: p, Healthy: n.NewSet(), Taken: n.NewSet(), Reusable: n.NewSet(),
	}
	for _, resource := range r.world.resources {
		p.Taken.Include(n.Select(held[resource.Name]))
		for _, d := range resource.Devices {
			if d.Healthy {
				p.Healthy.Include(n.Select([]string{d.ID}))
			}
		}
	}
	for i, c := range node.Containers(pod) {
		p.Admission.Containers = append(p.Admission.Containers, model.Container{
			Role: model.Role(roleOf(pod, i)), Requests: p.requests(i, node.Requests(&c)),
		})
	}
	return p.containers, p.Admit() == nil
}

// rule returns the rule of the Topology Manager.
func (w *world) rule() model.Rule {
	r := model.Rule{Policy: model.Policy(w.policy), MaxNodes: w.most}
	for _, n := range w.numa {
		r.Machine |= 1 << n.ID
	}
	if w.closest {
		r.Distances = w.byNumber()
	}
	return r
}

// requests returns requests in the order of the kubelet.
func (p *replay) requests(container int, requests map[string]int) (ordered model.Requests) {
	for _, name := range p.kubelet.order(container, slices.Collect(maps.Keys(requests))) {
		i, _ := p.Node.Resource(name)
		ordered = append(ordered, model.Request{Resource: i, Count: requests[name]})
	}
	return ordered
}

// Hints returns no hints: there are no managers of CPUs and memory.
func (p *replay) Hints(int) []model.Hints { return nil }

// Prefer records the question, and gives the answer of the plugin.
func (p *replay) Prefer(container int, q devicemanager.Question) devicemanager.Set {
	name := p.Node.Resources[q.Resource].Name
	p.containers[container].Allocations = append(p.containers[container].Allocations, allocation{
		Resource: name, Asked: true, Available: p.ids(q.Available()), Must: p.ids(q.Must), Size: q.Size,
	})
	return p.Node.Select(p.kubelet.answered(container, name))
}

// Pick returns the devices of the real kubelet.
func (p *replay) Pick(of devicemanager.Set, count int) devicemanager.Set {
	picked := p.Node.NewSet()
	for len(p.Admission.Containers[p.current].Requests) == 0 {
		p.current++
	}
	for _, a := range p.kubelet.containers[p.current].Allocations {
		picked.Include(p.Node.Select(a.Devices).Intersection(of))
	}
	if picked.Len() != count {
		return of.Lowest(count)
	}
	return picked
}

// Allocate records the devices of a container.
func (p *replay) Allocate(container int, best model.Hint, devices devicemanager.Set) error {
	c := &p.containers[container]
	for _, r := range p.Node.Resources {
		if have := p.ids(devices.Intersection(r.All)); len(have) > 0 {
			if c.of(r.Name) == nil {
				c.Allocations = append(c.Allocations, allocation{Resource: r.Name})
			}
			c.of(r.Name).Devices = have
		}
	}
	c.Nodes = p.Kubelet.Rule.Affinity(best).Numbers()
	p.current = container + 1
	return nil
}

// ids returns the IDs of devices, sorted.
func (p *replay) ids(of devicemanager.Set) (ids []string) {
	for _, d := range p.Node.Devices(of) {
		ids = append(ids, d.ID)
	}
	slices.Sort(ids)
	return ids
}
