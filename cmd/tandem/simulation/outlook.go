// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"math"
	"slices"

	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
)

// outlook is the value of every holding of a NUMA node for the pairs of future containers, given the rates of
// requests and the mean stay, but not the times. It is computed for a node that receives all arrivals, as the
// node with the lowest number does under policy restricted: with the optimal policy there, a holding's value
// is the number of additional pairs compared with an empty node.
type outlook struct {
	domain     domain
	symmetries [][]int // permutations of the devices that map holdings to equivalent ones
	values     map[holding]float64
}

// mostSymmetries limits the time of comparing two holdings.
const mostSymmetries = 64

// newOutlook computes the outlook by value iteration over all holdings. It returns nil if there are too many
// holdings or if NUMA nodes differ.
func newOutlook(n *world.Node, mix world.Mix, rate float64) *outlook {
	d := newDomain(n, 0)
	o := &outlook{domain: d, values: map[holding]float64{}}
	for i := range n.NUMA {
		if other := newDomain(n, i); !d.alike(&other) {
			return nil
		}
	}
	if !d.known || !o.findSymmetries() {
		return nil
	}
	m := model{outlook: o, index: map[holding]int{}, memo: map[holding]holding{}}
	if !m.explore(mix) {
		return nil
	}
	weight := 0.0
	for _, s := range mix {
		weight += s.Weight
	}
	for _, s := range mix {
		m.rates = append(m.rates, rate*s.Weight/weight)
	}
	for i, v := range m.iterate() {
		o.values[m.states[i]] = v
	}
	return o
}

// findSymmetries lists the permutations that exchange switches of one size, and devices of one kind on a
// switch.
func (o *outlook) findSymmetries() bool {
	var step func(order []int, left []capacity) bool
	step = func(order []int, left []capacity) bool {
		if len(left) == 0 {
			o.symmetries = append(o.symmetries, slices.Clone(order))
			return len(o.symmetries) <= mostSymmetries
		}
		size := o.domain.switches[len(o.domain.switches)-len(left)]
		for i, c := range left {
			if c.gpus != size.gpus || c.vfs != size.vfs {
				continue
			}
			rest := slices.Delete(slices.Clone(left), i, i+1)
			for _, gpus := range permutations(c.from, c.gpus) {
				for _, vfs := range permutations(c.from+c.gpus, c.vfs) {
					if !step(slices.Concat(order, gpus, vfs), rest) {
						return false
					}
				}
			}
		}
		return true
	}
	return step(nil, o.domain.switches)
}

// permutations returns all permutations of count numbers starting at first.
func permutations(first, count int) [][]int {
	if count == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for _, p := range permutations(first, count-1) {
		for at := range count {
			all = append(all, slices.Insert(slices.Clone(p), at, first+count-1))
		}
	}
	return all
}

// alike returns the canonical form of a holding: equivalent holdings differ only by interchangeable devices
// and by the containers' numbers.
func (o *outlook) alike(h holding) holding {
	best := holding{math.MaxUint8}
	for _, order := range o.symmetries {
		var candidate holding
		for to, from := range order {
			candidate[to] = h[from]
		}
		candidate = renumbered(candidate)
		if slices.Compare(candidate[:], best[:]) < 0 {
			best = candidate
		}
	}
	return best
}

// renumbered numbers containers 1, 2 … in order of appearance.
func renumbered(h holding) holding {
	var numbers [256]byte
	last := byte(0)
	for i, by := range h {
		if by != 0 && numbers[by] == 0 {
			last++
			numbers[by] = last
		}
		h[i] = numbers[by]
	}
	return h
}

// model is the Markov decision process of a NUMA node.
type model struct {
	*outlook
	states []holding
	index  map[holding]int
	memo   map[holding]holding
	come   [][][]step // by state and request: the possible choices; empty if the request does not fit
	leave  [][]int    // by state: the state after the departure of each container
	rates  []float64  // by request
}

// step is a choice: its pairs, and the next state.
type step struct{ pairs, to int }

// explore finds all states reachable from the empty node.
func (m *model) explore(mix world.Mix) bool {
	m.number(holding{})
	for i := 0; i < len(m.states); i++ {
		if len(m.states) > mostWays {
			return false
		}
		h := m.states[i]
		var leave []int
		for by := byte(1); by <= slices.Max(h[:]); by++ {
			after := h
			for k := range after {
				if after[k] == by {
					after[k] = 0
				}
			}
			leave = append(leave, m.number(after))
		}
		come := make([][]step, len(mix))
		for k, s := range mix {
			rest := taking{s.Request.GPUs, s.Request.VFs}
			m.domain.place(h, 0, rest, math.MaxUint8, 0, func(after holding, pairs int) {
				if next := (step{pairs, m.number(after)}); !slices.Contains(come[k], next) {
					come[k] = append(come[k], next)
				}
			})
		}
		m.leave, m.come = append(m.leave, leave), append(m.come, come)
	}
	return true
}

func (m *model) number(h holding) int {
	h = renumbered(h)
	same, ok := m.memo[h]
	if !ok {
		same = m.alike(h)
		m.memo[h] = same
	}
	i, ok := m.index[same]
	if !ok {
		i = len(m.states)
		m.index[same] = i
		m.states = append(m.states, same)
	}
	return i
}

// Value iteration ends when no value changes relative to the others by more than closeEnough, in pairs per
// event.
const (
	closeEnough = 1e-9
	mostRounds  = 20_000
)

// iterate finds the value of every state under the best choices, relative to the empty node.
func (m *model) iterate() []float64 {
	values, next := make([]float64, len(m.states)), make([]float64, len(m.states))
	for range mostRounds {
		low, high := math.Inf(1), math.Inf(-1)
		for i := range m.states {
			next[i] = m.value(i, values)
			low, high = min(low, next[i]-values[i]), max(high, next[i]-values[i])
		}
		empty := next[0]
		for i := range next {
			values[i] = next[i] - empty
		}
		if high-low < closeEnough {
			break
		}
	}
	return values
}

// value returns the value of a state one event earlier. The rate of events is constant: that of all requests
// and of the maximum number of departures, of which those without a container change nothing.
func (m *model) value(i int, values []float64) float64 {
	sum, total := float64(mostHeld-len(m.leave[i]))*values[i], float64(mostHeld)
	for _, to := range m.leave[i] {
		sum += values[to]
	}
	for k, choices := range m.come[i] {
		best := values[i]
		for c, choice := range choices {
			if v := float64(choice.pairs) + values[choice.to]; c == 0 || v > best {
				best = v
			}
		}
		sum += m.rates[k] * best
		total += m.rates[k]
	}
	return sum / total
}
