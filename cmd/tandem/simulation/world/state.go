package world

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
	Node  *Node
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
	s := &State{Node: node, rules: rules}
	for _, kind := range Kinds {
		s.taken[kind] = make([]bool, node.Count(kind))
		s.by[kind] = make([]int, node.Count(kind))
		s.free[kind] = node.Count(kind)
		s.freeAt[kind] = make(hints.PerNode, len(node.NUMA))
		s.freeOn[kind] = make([]int, node.Switches)
		for i := range node.Devices[kind] {
			s.count(kind, i, 1)
		}
		s.at[kind] = slices.Clone(s.freeAt[kind])
	}
	return s
}

// NUMA is the node that the kubelet is told for a device, -1 for none.
func (s *State) NUMA(kind Kind, i int) int {
	if kind == VF && s.rules.ExcludeTopology {
		return -1
	}
	return s.Node.Devices[kind][i].NUMA
}

func (s *State) count(kind Kind, i, by int) {
	if n := s.NUMA(kind, i); n >= 0 {
		s.freeAt[kind][n] += by
	}
	if n := s.Node.Devices[kind][i].Switch; n >= 0 {
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
	for _, kind := range Kinds {
		for _, i := range c.Devices[kind] {
			s.taken[kind][i] = false
			s.free[kind]++
			s.count(kind, i, 1)
		}
	}
}

// Stranded is how many pairs the free devices would make were it not for the switches, less those that they
// do make.
func (s *State) Stranded() int {
	made := 0
	for i, g := range s.freeOn[GPU] {
		made += min(g, s.freeOn[VF][i])
	}
	return min(s.free[GPU], s.free[VF]) - made
}

// Affinity tells the NUMA nodes that the Topology Manager gives a container, and whether it admits it. Under
// policy none there are no nodes.
func (s *State) Affinity(r Request) (hints.Mask, bool) {
	mask, admitted := s.rules.Policy.Nodes(s.Demand(GPU, r.GPUs), s.Demand(VF, r.VFs))
	if mask == 0 && s.rules.Policy != hints.None {
		mask = 1<<len(s.Node.NUMA) - 1
	}
	return mask, admitted
}

// Demand is so many devices of a kind, as the Topology Manager looks at them.
func (s *State) Demand(kind Kind, count int) hints.Demand {
	return hints.Demand{Count: count, All: s.at[kind], Free: s.freeAt[kind]}
}

// Numbers is a copy that is good for asking how many devices are free where.
func (s *State) Numbers() State {
	c := *s
	for _, kind := range Kinds {
		c.freeAt[kind] = slices.Clone(s.freeAt[kind])
	}
	return c
}

// Fits reports whether there are enough free devices by number.
func (s *State) Fits(r Request) bool { return r.GPUs <= s.free[GPU] && r.VFs <= s.free[VF] }

// Rules are those of the state's kubelet.
func (s *State) Rules() Rules { return s.rules }

// Taken reports whether a container has a device.
func (s *State) Taken(kind Kind, i int) bool { return s.taken[kind][i] }

// Owner is the number of the container that has a device that is taken. Containers are numbered from 1 in the
// order in which they come.
func (s *State) Owner(kind Kind, i int) int { return s.by[kind][i] }

// Last is the number of the container that came last; within a question, of the one that is asking.
func (s *State) Last() int { return s.last }

// Free is how many devices of a kind are free.
func (s *State) Free(kind Kind) int { return s.free[kind] }

// FreeAt is how many are free on some NUMA nodes.
func (s *State) FreeAt(kind Kind, m hints.Mask) int { return s.freeAt[kind].On(m) }

// FreeOn is how many are free on a switch.
func (s *State) FreeOn(kind Kind, at int) int { return s.freeOn[kind][at] }

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
