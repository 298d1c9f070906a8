// SPDX-License-Identifier: Apache-2.0

// Package object computes a node's NodeTopology from its facts, as a pure function.
package object

import (
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/publish/facts"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
)

// Build returns the specification of a node's NodeTopology. Equal facts give equal results, in any order of
// their lists.
func Build(f facts.Facts) v1alpha1.Spec {
	numbers := number(f.Resources)
	spec := v1alpha1.ToSpec(node(f, numbers))
	for i, r := range numbers.resources {
		addFunctions(&spec.Resources[i], f.Tree, r)
	}
	spec.Switches = v1alpha1.SwitchesOf(f.Tree, places(numbers.resources))
	for i, n := range f.NUMANodes {
		addManaged(&spec.NUMANodes[i], f, n)
	}
	spec.Links = links(numbers.resources)
	spec.Held, spec.MemoryReserved = held(f, numbers), memoryReserved(f)
	spec.Summary = summary(spec, f.Gone)
	return spec
}

// node returns the model of the node.
func node(f facts.Facts, n numbered) *model.Node {
	m := &model.Node{Kubelet: f.Kubelet, Alignment: f.Alignment}
	for _, numa := range f.NUMANodes {
		m.NUMANodes = append(m.NUMANodes, model.NUMANode{Number: numa.Number, Distances: numa.Distances})
	}
	for _, r := range n.resources {
		modelled := model.Resource{Name: r.Name, Kind: devicemanager.GPU}
		if r.Kind == device.VF {
			modelled.Kind = devicemanager.VF
		}
		for _, d := range r.Devices {
			modelled.Devices = append(modelled.Devices, model.Device{NUMA: d.NUMA, Healthy: d.Healthy})
		}
		m.Resources = append(m.Resources, modelled)
	}
	return m
}

// numbered are the devices with their numbers.
type numbered struct {
	resources []facts.Resource
	of        map[string]map[string]int // by resource and ID
}

func number(resources []facts.Resource) numbered {
	n := numbered{slices.Clone(resources), map[string]map[string]int{}}
	slices.SortFunc(n.resources, func(a, b facts.Resource) int { return strings.Compare(a.Name, b.Name) })
	for i := range n.resources {
		r := &n.resources[i]
		r.Devices = slices.SortedFunc(slices.Values(r.Devices), device.Compare)
		n.of[r.Name] = map[string]int{}
		for number, d := range r.Devices {
			n.of[r.Name][d.ID] = number
		}
	}
	return n
}

// set collects the numbers of devices by resource.
type set map[string][]int

func (s set) add(resource string, number int) { s[resource] = append(s[resource], number) }

// sets converts the numbers; nil for an empty set.
func (s set) sets() map[string]v1alpha1.Set {
	if len(s) == 0 {
		return nil
	}
	written := map[string]v1alpha1.Set{}
	for name, numbers := range s {
		written[name] = v1alpha1.SetOf(numbers...)
	}
	return written
}
