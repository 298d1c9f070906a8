// SPDX-License-Identifier: Apache-2.0

package world

import (
	"math/rand/v2"

	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// Rules are the kubelet's settings that matter to an admission.
type Rules struct {
	Policy          hints.Policy
	ExcludeTopology bool // VFs are announced without NUMA nodes
}

// State is what is free on a node at a moment.
type State struct {
	Node    *Node
	rules   Rules
	rule    hints.Rule
	devices *devicemanager.Node // as the kubelet is told of them
	all     devicemanager.Set
	free    devicemanager.Set
	by      [2][]int // the container that has a device, while it is taken: its number in the order of admission
	last    int      // of these numbers
}

// NewState returns a node with everything free.
func NewState(node *Node, rules Rules) *State {
	s := &State{
		Node: node, rules: rules, devices: node.told[0],
		rule: hints.Rule{Policy: rules.Policy, Machine: 1<<len(node.NUMA) - 1},
	}
	if rules.ExcludeTopology {
		s.devices = node.told[1]
	}
	s.all = s.devices.OfKind[GPU].Clone()
	s.all.Include(s.devices.OfKind[VF])
	s.free = s.all.Clone()
	for _, kind := range Kinds {
		s.by[kind] = make([]int, node.Count(kind))
	}
	return s
}

// list are the devices of a kind that are in a set, ascending.
func (s *State) list(kind Kind, of devicemanager.Set) []int {
	r := &s.devices.Resources[kind]
	devices := make([]int, 0, of.Common(r.All))
	for i := range r.Count {
		if of.Has(r.First + i) {
			devices = append(devices, i)
		}
	}
	return devices
}

func (s *State) set(kind Kind, devices []int) devicemanager.Set {
	set := s.devices.NewSet()
	for _, i := range devices {
		set.Insert(s.devices.Resources[kind].First + i)
	}
	return set
}

func (s *State) take(kind Kind, devices []int) {
	s.free.Exclude(s.set(kind, devices))
	for _, i := range devices {
		s.by[kind][i] = s.last
	}
}

// Take gives devices to a container, whatever the kubelet would say.
func (s *State) Take(c Container) {
	s.last++
	s.take(GPU, c.Devices[GPU])
	s.take(VF, c.Devices[VF])
}

// Release makes the devices of a container free again.
func (s *State) Release(c Container) {
	for _, kind := range Kinds {
		s.free.Include(s.set(kind, c.Devices[kind]))
	}
}

// Stranded is how many pairs the free devices would make were it not for the switches, less those that they
// do make.
func (s *State) Stranded() int { return s.Node.switches.Stranded(s.devices, s.free) }

// Affinity tells the NUMA nodes that the Topology Manager gives a container, and whether it admits it. Under
// policy none there are no nodes.
func (s *State) Affinity(r Request) (hints.Mask, bool) {
	best, admitted := s.admission(r, GPU, nil).Merge(0, r.requests(GPU))
	return s.mask(best.Nodes), admitted
}

// mask is all nodes where the Topology Manager has chosen none.
func (s *State) mask(nodes hints.Mask) hints.Mask {
	if nodes == 0 && s.rules.Policy != hints.None {
		return 1<<len(s.Node.NUMA) - 1
	}
	return nodes
}

// Demand is so many devices of a kind, as the Topology Manager looks at them.
func (s *State) Demand(kind Kind, count int) hints.Demand {
	return s.devices.Resources[kind].Demand(count, s.free, nil)
}

// Numbers is a copy that is good for asking how many devices are free where.
func (s *State) Numbers() State {
	c := *s
	c.free = s.free.Clone()
	return c
}

// Fits reports whether there are enough free devices by number.
func (s *State) Fits(r Request) bool { return r.GPUs <= s.Free(GPU) && r.VFs <= s.Free(VF) }

// Rules are those of the state's kubelet.
func (s *State) Rules() Rules { return s.rules }

// Taken reports whether a container has a device.
func (s *State) Taken(kind Kind, i int) bool { return !s.free.Has(s.devices.Resources[kind].First + i) }

// Owner is the number of the container that has a device that is taken. Containers are numbered from 1 in the
// order in which they come.
func (s *State) Owner(kind Kind, i int) int { return s.by[kind][i] }

// Last is the number of the container that came last; within a question, of the one that is asking.
func (s *State) Last() int { return s.last }

// Free is how many devices of a kind are free.
func (s *State) Free(kind Kind) int { return s.free.Common(s.devices.OfKind[kind]) }

// FreeAt is how many are free on some NUMA nodes.
func (s *State) FreeAt(kind Kind, m hints.Mask) int {
	return s.devices.Resources[kind].Aligned(s.free, m).Len()
}

// FreeOn is how many are free on a switch.
func (s *State) FreeOn(kind Kind, at int) int { return s.free.Common(s.Node.switches[at][kind]) }

// Container is what a container was given: indices of the node's devices.
type Container struct {
	Request Request
	Devices [2][]int
}

// Pick moves n random elements of a list to its front and returns them.
func Pick(list []int, n int, rng *rand.Rand) []int {
	for i := range n {
		j := i + rng.IntN(len(list)-i)
		list[i], list[j] = list[j], list[i]
	}
	return list[:n]
}
