package simulation

import (
	"fmt"
	"math/bits"
	"strings"
)

// Policy is a Topology Manager policy of the kubelet.
type Policy string

// The policies that are simulated.
const (
	Restricted Policy = "restricted"
	BestEffort Policy = "best-effort"
	None       Policy = "none"
)

// ParsePolicy reads a policy as the kubelet's configuration spells it.
func ParsePolicy(s string) (Policy, error) {
	switch p := Policy(s); p {
	case Restricted, BestEffort, None:
		return p, nil
	}
	return "", fmt.Errorf("parse policy %q: want %s", s, strings.Join([]string{string(Restricted), string(BestEffort), string(None)}, ", "))
}

// Mask is a set of NUMA nodes, a bit for each, numbered in ascending order. The zero Mask is no affinity at all.
type Mask uint

// narrower is the order of masks in the kubelet's bitmask package: fewer nodes, then lower numbers.
func (m Mask) narrower(than Mask) bool {
	if a, b := bits.OnesCount(uint(m)), bits.OnesCount(uint(than)); a != b {
		return a < b
	}
	return m < than
}

func (m Mask) nodes() int { return bits.OnesCount(uint(m)) }

// hint is one set of NUMA nodes that can give what is asked.
type hint struct {
	mask      Mask // 0 for any nodes
	preferred bool
}

// hints are those of one resource, as generateDeviceTopologyHints of the kubelet's device manager makes them: one for every set of
// nodes with enough free devices, preferred where the set is as small as all devices, free or not, allow.
func (s *State) hints(kind Kind, count int) []hint {
	all := s.perMask[kind]
	if all[len(all)-1] == 0 {
		return anyNodes // no device has a node: no preference
	}
	width := s.width(kind, count)
	list := s.scratch[kind][:0]
	for mask := Mask(1); mask < Mask(len(all)); mask++ {
		if all[mask] == 0 || mask&^s.bearing[kind] != 0 {
			continue
		}
		if s.freeIn(kind, mask) >= count {
			list = append(list, hint{mask, mask.nodes() == width})
		}
	}
	s.scratch[kind] = list
	if len(list) == 0 {
		return impossible
	}
	return list
}

var (
	anyNodes   = []hint{{0, true}}
	impossible = []hint{{0, false}}
)

// width is the smallest number of nodes whose devices, free or not, are enough.
func (s *State) width(kind Kind, count int) int {
	width := s.bearing[kind].nodes()
	for mask, devices := range s.perMask[kind] {
		if n := Mask(mask).nodes(); devices >= count && n > 0 && n < width {
			width = n
		}
	}
	return width
}

func (s *State) freeIn(kind Kind, mask Mask) int {
	sum := 0
	for i, n := range s.freeAt[kind] {
		if mask>>i&1 == 1 {
			sum += n
		}
	}
	return sum
}

// Affinity tells the NUMA nodes that the Topology Manager would give a container, and whether it would admit it.
func (s *State) Affinity(r Request) (Mask, bool) { return s.merge(r) }

// merge finds the nodes that the Topology Manager gives a container, and whether it admits it. Under policy none there are no
// nodes.
func (s *State) merge(r Request) (Mask, bool) {
	if s.rules.Policy == None || len(s.node.numa) == 0 {
		return 0, true
	}
	var halves [][]hint
	for _, kind := range kinds {
		if n := r.of(kind); n > 0 {
			halves = append(halves, s.hints(kind, n))
		}
	}
	m := merger{all: Mask(1)<<len(s.node.numa) - 1, most: mostOfNarrowest(halves)}
	best := m.merge(halves)
	return best.mask, best.preferred || s.rules.Policy == BestEffort
}

// mostOfNarrowest is how many nodes the resource needs that needs most, were it alone.
func mostOfNarrowest(halves [][]hint) int {
	most := 0
	for _, hints := range halves {
		narrowest := Mask(0)
		for _, h := range hints {
			if h.mask != 0 && (narrowest == 0 || h.mask.narrower(narrowest)) {
				narrowest = h.mask
			}
		}
		most = max(most, narrowest.nodes())
	}
	return most
}

// merger is the kubelet's HintMerger (pkg/kubelet/cm/topologymanager/policy.go).
type merger struct {
	all  Mask
	most int // BestNonPreferredAffinityCount
}

// merge tries one hint of every resource together with one of every other.
func (m *merger) merge(halves [][]hint) hint {
	best := hint{}
	for _, a := range halves[0] {
		merged := hint{m.all, a.preferred}
		if a.mask != 0 {
			merged.mask = a.mask
		}
		if len(halves) == 1 {
			best = m.better(best, merged)
			continue
		}
		for _, b := range halves[1] {
			both := hint{merged.mask, a.preferred && b.preferred && (a.mask == 0 || b.mask == 0 || a.mask == b.mask)}
			if b.mask != 0 {
				both.mask &= b.mask
			}
			best = m.better(best, both)
		}
	}
	if best.mask == 0 {
		return hint{m.all, false}
	}
	return best
}

// better compares two merged hints as HintMerger.compare does: preferred before not; preferred ones by narrowness; others by
// how close they come from below to the nodes of the resource that needs most.
func (m *merger) better(current, candidate hint) hint {
	switch {
	case candidate.mask == 0:
		return current
	case current.mask == 0:
		return candidate
	case current.preferred != candidate.preferred:
		if candidate.preferred {
			return candidate
		}
		return current
	}
	c, d := m.rank(current), m.rank(candidate)
	if d < c || d == c && candidate.mask.narrower(current.mask) {
		return candidate
	}
	return current
}

// rank is 0 for what is preferred and for as many nodes as the neediest resource needs; then come fewer nodes, the most of them
// first, then more.
func (m *merger) rank(h hint) int {
	n := h.mask.nodes()
	switch {
	case h.preferred || n == m.most:
		return 0
	case n < m.most:
		return m.most - n
	default:
		return m.most + 1
	}
}
