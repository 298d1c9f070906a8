// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
)

// ToSpec returns the specification of a node, without what is not in the model.
func ToSpec(n *model.Node) Spec {
	s := Spec{Kubelet: n.Kubelet, Alignment: n.Alignment, Resources: []Resource{}}
	for _, node := range n.NUMANodes {
		s.NUMANodes = append(s.NUMANodes, NUMANode{Number: node.Number, Distances: node.Distances})
	}
	for _, r := range n.Resources {
		published := Resource{Name: r.Name, Kind: kinds[r.Kind], Devices: len(r.Devices)}
		var unhealthy []int
		hints := map[string][]int{}
		for number, d := range r.Devices {
			if !d.Healthy {
				unhealthy = append(unhealthy, number)
			}
			if node, known := d.NUMA.Number(); known {
				hints[strconv.Itoa(node)] = append(hints[strconv.Itoa(node)], number)
			}
		}
		published.Unhealthy = SetOf(unhealthy...)
		for node, numbers := range hints {
			if published.Hints == nil {
				published.Hints = map[string]Set{}
			}
			published.Hints[node] = SetOf(numbers...)
		}
		s.Resources = append(s.Resources, published)
	}
	return s
}

var kinds = [...]Kind{devicemanager.GPU: GPU, devicemanager.VF: VF}

// FromSpec returns the model of a published node, which must be valid (Spec.Validate). It returns an error
// that names the resource if the specification contradicts itself.
func FromSpec(s *Spec) (*model.Node, error) {
	n := &model.Node{Kubelet: s.Kubelet, Alignment: s.Alignment}
	for _, node := range s.NUMANodes {
		n.NUMANodes = append(n.NUMANodes, model.NUMANode{Number: node.Number, Distances: node.Distances})
	}
	for i := range s.Resources {
		r, err := s.Resources[i].model()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", s.Resources[i].Name, err)
		}
		n.Resources = append(n.Resources, r)
	}
	return n, nil
}

func (r *Resource) model() (model.Resource, error) {
	kind := slices.Index(kinds[:], r.Kind)
	if kind < 0 {
		return model.Resource{}, fmt.Errorf("kind %q: want %s or %s", r.Kind, GPU, VF)
	}
	m := model.Resource{Name: r.Name, Kind: devicemanager.Kind(kind), Devices: make([]model.Device, r.Devices)}
	unhealthy, err := r.Unhealthy.List(r.Devices)
	if err != nil {
		return m, fmt.Errorf("read unhealthy devices: %w", err)
	}
	for n := range m.Devices {
		m.Devices[n].Healthy = true
	}
	for _, n := range unhealthy {
		m.Devices[n].Healthy = false
	}
	for _, text := range slices.Sorted(maps.Keys(r.Hints)) {
		node, err := strconv.Atoi(text)
		if err != nil || node < 0 || node > 63 {
			return m, fmt.Errorf("hint of NUMA node %q: want a number from 0 to 63", text)
		}
		numbers, err := r.Hints[text].List(r.Devices)
		if err != nil {
			return m, fmt.Errorf("read devices of NUMA node %d: %w", node, err)
		}
		for _, n := range numbers {
			if other, known := m.Devices[n].NUMA.Number(); known {
				return m, fmt.Errorf("device %d is on NUMA nodes %d and %d", n, other, node)
			}
			m.Devices[n].NUMA = topology.Node(node)
		}
	}
	return m, nil
}
