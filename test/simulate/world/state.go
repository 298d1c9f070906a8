// SPDX-License-Identifier: Apache-2.0

package world

import (
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// Rules are the kubelet's settings for admissions.
type Rules struct {
	Policy          hints.Policy
	ExcludeTopology bool // VFs are announced without NUMA nodes
}

// State is the allocation of a node's devices.
type State struct {
	Node    *Node
	Rules   Rules // of the node's kubelet
	rule    hints.Rule
	devices *devicemanager.Node // as announced to the kubelet
	all     devicemanager.Set
	free    devicemanager.Set
}

// NewState returns a node with everything free.
func NewState(node *Node, rules Rules) *State {
	s := &State{
		Node: node, Rules: rules, devices: node.told[0],
		rule: hints.Rule{Policy: rules.Policy, Machine: 1<<len(node.NUMA) - 1},
	}
	if rules.ExcludeTopology {
		s.devices = node.told[1]
	}
	s.all = s.devices.OfKind[GPU].Clone()
	s.all.Include(s.devices.OfKind[VF])
	s.free = s.all.Clone()
	return s
}

// list returns the devices of a kind in a set, ascending.
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
}

// Take gives devices to a container, without an admission.
func (s *State) Take(c Container) {
	s.take(GPU, c.Devices[GPU])
	s.take(VF, c.Devices[VF])
}

// Release makes the devices of a container free again.
func (s *State) Release(c Container) {
	for _, kind := range Kinds {
		s.free.Include(s.set(kind, c.Devices[kind]))
	}
}

// Stranded returns the number of pairs that the free devices could make regardless of switches, less those
// possible on switches.
func (s *State) Stranded() int { return s.Node.switches.Stranded(s.devices, s.free) }

// Affinity returns the NUMA nodes that the Topology Manager gives a container, and whether it admits the
// container. Under policy none there are no nodes.
func (s *State) Affinity(r Request) (hints.Mask, bool) {
	best, admitted := s.admission(r, GPU, nil).Merge(0, r.requests(GPU))
	return s.mask(best.Nodes), admitted
}

// mask returns all nodes if the Topology Manager has chosen none.
func (s *State) mask(nodes hints.Mask) hints.Mask {
	if nodes == 0 && s.Rules.Policy != hints.None {
		return 1<<len(s.Node.NUMA) - 1
	}
	return nodes
}

// Fits reports whether enough devices are free by number.
func (s *State) Fits(r Request) bool { return r.GPUs <= s.Free(GPU) && r.VFs <= s.Free(VF) }

// Taken reports whether a container has a device.
func (s *State) Taken(kind Kind, i int) bool { return !s.free.Has(s.devices.Resources[kind].First + i) }

// Free returns the number of free devices of a kind.
func (s *State) Free(kind Kind) int { return s.free.Common(s.devices.OfKind[kind]) }

// FreeOn returns the number of free devices on a switch.
func (s *State) FreeOn(kind Kind, at int) int { return s.free.Common(s.Node.switches[at][kind]) }

// Container has the devices of a container, as indices of the node's devices.
type Container struct {
	Request Request
	Devices [2][]int
}
