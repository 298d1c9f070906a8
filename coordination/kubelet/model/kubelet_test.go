// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/tandem-k8s/tandem/test/scale"
	"github.com/tandem-k8s/tandem/topology"
)

// TestAsTheKubeletMerges compares the rule with the kubelet's own, step by step: generateDeviceTopologyHints
// of the device manager and HintMerger of the Topology Manager, which goes through all permutations of hints.
func TestAsTheKubeletMerges(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 0))
	outcomes := map[string]int{}
	for range scale.Rounds(100_000) {
		machine := machines[rng.IntN(len(machines))]
		demands := make([]Demand, 1+rng.IntN(3))
		for i := range demands {
			demands[i] = randomDemand(rng, machine)
		}
		var lists []Hints
		for range rng.IntN(3) {
			lists = append(lists, randomList(rng, machine))
		}
		rule := Rule{Machine: machine, Distances: randomDistances(rng, machine)}
		for _, rule.Policy = range []Policy{Restricted, BestEffort, SingleNUMANode} {
			merged := merge(rule, demands, lists)
			want, wantAdmitted := merged.Nodes, merged.Preferred || rule.Policy == BestEffort
			got, admitted := rule.Nodes(demands, lists...)
			if got == 0 && admitted && rule.Policy != SingleNUMANode {
				got = machine
			}
			if admitted != wantAdmitted || admitted && got != want {
				t.Fatalf("%s, nodes %v, %v, %+v, %+v:\ngot %v, %t; the kubelet %v, %t", rule.Policy, machine.Numbers(),
					rule.Distances, demands, lists, got.Numbers(), admitted, want.Numbers(), wantAdmitted)
			}
			outcomes[fmt.Sprintf("%s preferred %t", rule.Policy, admitted && merged.Preferred)]++
		}
	}
	for what, n := range outcomes {
		if n < scale.Rounds(5000) {
			t.Errorf("there is little to compare: %s %d times", what, n)
		}
	}
	if len(outcomes) != 6 {
		t.Errorf("there is little to compare: %v", outcomes)
	}
}

// machines are sets of NUMA nodes.
var machines = []Mask{1, 0b11, 0b111, 0b1111, 0b100000001, 1<<63 | 1}

// randomDemand asks for devices of which some nodes have none, some are taken, and some are an init
// container's.
func randomDemand(rng *rand.Rand, machine Mask) Demand {
	var d Demand
	for _, n := range machine.Numbers() {
		for range rng.IntN(4) {
			d.All.Add(topology.Node(n))
			switch rng.IntN(8) {
			case 0, 1:
			case 2:
				d.Reused.Add(topology.Node(n))
				d.Free.Add(topology.Node(n))
			default:
				d.Free.Add(topology.Node(n))
			}
		}
	}
	if rng.IntN(8) == 0 {
		d = Demand{} // excludeTopology
	}
	d.Count, d.Named = rng.IntN(6), true
	return d
}

// randomList are hints of a CPU or memory manager: none, no possible ones, or sets of nodes of which some are
// preferred.
func randomList(rng *rand.Rand, machine Mask) Hints {
	switch rng.IntN(8) {
	case 0:
		return nil
	case 1:
		return Hints{}
	case 2:
		return Hints{{Preferred: rng.IntN(2) == 0}}
	}
	list := Hints{}
	width := 1 + rng.IntN(2)
	eachMask(machine.Numbers(), func(m Mask) {
		if rng.IntN(4) > 0 {
			list = append(list, Hint{m, m.Count() == width})
		}
	})
	return list
}

// randomDistances are none, or such that many are the same; the kubelet looks them up by the numbers of the
// nodes, so that these must have no holes.
func randomDistances(rng *rand.Rand, machine Mask) [][]int {
	count := machine.Count()
	if machine != 1<<count-1 || rng.IntN(2) == 0 {
		return nil
	}
	distances := make([][]int, count)
	for a := range distances {
		for range count {
			distances[a] = append(distances[a], 20+rng.IntN(3))
		}
		distances[a][a] = 10
	}
	return distances
}

// deviceHints is generateDeviceTopologyHints, with what GetTopologyHints and filterProvidersHints make of no
// hint.
func deviceHints(d Demand) []Hint {
	bearing := d.All.nodesWith()
	if bearing == 0 {
		return []Hint{{0, true}}
	}
	var list []Hint
	width := bearing.Count()
	eachMask(bearing.Numbers(), func(m Mask) {
		if d.All.On(m) >= d.Count {
			width = min(width, m.Count())
		}
		for n, devices := range d.Reused {
			if devices > 0 && m>>n&1 == 0 {
				return
			}
		}
		if d.Free.On(m) >= d.Count {
			list = append(list, Hint{Nodes: m})
		}
	})
	for i := range list {
		list[i].Preferred = list[i].Nodes.Count() == width
	}
	if len(list) == 0 {
		return []Hint{{0, false}}
	}
	return list
}

// eachMask is IterateBitMasks: by size, then in the order of the numbers.
func eachMask(numbers []int, visit func(Mask)) {
	for size := 1; size <= len(numbers); size++ {
		for choice := range uint(1) << len(numbers) {
			if bits.OnesCount(choice) != size {
				continue
			}
			var m Mask
			for i, n := range numbers {
				if choice>>i&1 == 1 {
					m |= 1 << n
				}
			}
			visit(m)
		}
	}
}
