package simulation

import (
	"math/rand/v2"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// Rules are the kubelet's settings that matter to an admission.
type Rules struct {
	Policy          hints.Policy
	ExcludeTopology bool // VFs are announced without NUMA nodes
}

// State is what is free on a node at a moment.
type State struct {
	node  *Node
	rules Rules
	taken [2][]bool
	by    [2][]int // the container that has a device, while it is taken: its number in the order of admission
	last  int      // of these numbers
	free  [2]int

	at     [2]hints.PerNode // devices, free or not; what the kubelet is told
	freeAt [2]hints.PerNode // free devices
	freeOn [2][]int         // free devices by switch
}

// NewState returns a node with everything free.
func NewState(node *Node, rules Rules) *State {
	s := &State{node: node, rules: rules}
	for _, kind := range kinds {
		s.taken[kind] = make([]bool, node.Count(kind))
		s.by[kind] = make([]int, node.Count(kind))
		s.free[kind] = node.Count(kind)
		s.freeAt[kind] = make(hints.PerNode, len(node.numa))
		s.freeOn[kind] = make([]int, node.switches)
		for i := range node.devices[kind] {
			s.count(kind, i, 1)
		}
		s.at[kind] = slices.Clone(s.freeAt[kind])
	}
	return s
}

// numa is the node that the kubelet is told for a device, -1 for none.
func (s *State) numa(kind Kind, i int) int {
	if kind == VF && s.rules.ExcludeTopology {
		return -1
	}
	return s.node.devices[kind][i].numa
}

func (s *State) count(kind Kind, i, by int) {
	if n := s.numa(kind, i); n >= 0 {
		s.freeAt[kind][n] += by
	}
	if n := s.node.devices[kind][i].onSwitch; n >= 0 {
		s.freeOn[kind][n] += by
	}
}

func (s *State) take(kind Kind, devices []int) {
	for _, i := range devices {
		s.taken[kind][i] = true
		s.by[kind][i] = s.last
		s.free[kind]--
		s.count(kind, i, -1)
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
	for _, kind := range kinds {
		for _, i := range c.Devices[kind] {
			s.taken[kind][i] = false
			s.free[kind]++
			s.count(kind, i, 1)
		}
	}
}

// stranded is how many pairs the free devices would make were it not for the switches, less those that they do make.
func (s *State) stranded() int {
	made := 0
	for i, g := range s.freeOn[GPU] {
		made += min(g, s.freeOn[VF][i])
	}
	return min(s.free[GPU], s.free[VF]) - made
}

// Affinity tells the NUMA nodes that the Topology Manager gives a container, and whether it admits it. Under policy none there
// are no nodes.
func (s *State) Affinity(r Request) (hints.Mask, bool) {
	mask, admitted := s.rules.Policy.Nodes(s.demand(GPU, r.GPUs), s.demand(VF, r.VFs))
	if mask == 0 && s.rules.Policy != hints.None {
		mask = 1<<len(s.node.numa) - 1
	}
	return mask, admitted
}

func (s *State) demand(kind Kind, count int) hints.Demand {
	return hints.Demand{Count: count, All: s.at[kind], Free: s.freeAt[kind]}
}

// numbers is a copy that is good for asking how many devices are free where.
func (s *State) numbers() State {
	c := *s
	for _, kind := range kinds {
		c.freeAt[kind] = slices.Clone(s.freeAt[kind])
	}
	return c
}

// fits reports whether there are enough free devices by number.
func (s *State) fits(r Request) bool { return r.GPUs <= s.free[GPU] && r.VFs <= s.free[VF] }

// Container is what a container was given: indices of the node's devices.
type Container struct {
	Request Request
	Devices [2][]int
}

// pick moves n random elements of a list to its front and returns them.
func pick(list []int, n int, rng *rand.Rand) []int {
	for i := range n {
		j := i + rng.IntN(len(list)-i)
		list[i], list[j] = list[j], list[i]
	}
	return list[:n]
}
