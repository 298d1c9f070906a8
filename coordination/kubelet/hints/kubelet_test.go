package hints

import (
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/tandem-k8s/tandem/topology"
)

// TestAsTheKubeletMerges compares the rule with the kubelet's own, step by step: generateDeviceTopologyHints
// of the device manager and HintMerger of the Topology Manager, which goes through all permutations of hints.
func TestAsTheKubeletMerges(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 0))
	outcomes := map[bool]int{}
	for range 100_000 {
		machine := machines[rng.IntN(len(machines))]
		demands := make([]Demand, 1+rng.IntN(3))
		for i := range demands {
			demands[i] = randomDemand(rng, machine)
		}
		merged := merge(machine, demands)
		for _, policy := range []Policy{Restricted, BestEffort} {
			want, wantAdmitted := merged.nodes, merged.preferred || policy == BestEffort
			got, admitted := policy.Nodes(demands...)
			if got == 0 && admitted {
				got = machine
			}
			if admitted != wantAdmitted || admitted && got != want {
				t.Fatalf("%s, nodes %v, %+v:\ngot %v, %t; the kubelet %v, %t",
					policy, machine.Numbers(), demands, got.Numbers(), admitted, want.Numbers(), wantAdmitted)
			}
			outcomes[admitted && merged.preferred]++
		}
	}
	if outcomes[true] < 10_000 || outcomes[false] < 10_000 {
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
	d.Count = 1 + rng.IntN(5)
	return d
}

// hint is TopologyHint, with 0 for no affinity.
type hint struct {
	nodes     Mask
	preferred bool
}

// deviceHints is generateDeviceTopologyHints, with what GetTopologyHints and filterProvidersHints make of no
// hint.
func deviceHints(d Demand) []hint {
	bearing := d.All.nodes()
	if bearing == 0 {
		return []hint{{0, true}}
	}
	var list []hint
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
			list = append(list, hint{nodes: m})
		}
	})
	for i := range list {
		list[i].preferred = list[i].nodes.Count() == width
	}
	if len(list) == 0 {
		return []hint{{0, false}}
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

// merge is HintMerger.Merge.
func merge(machine Mask, demands []Demand) hint {
	var all [][]hint
	most := 0 // maxOfMinAffinityCounts
	for _, d := range demands {
		list := deviceHints(d)
		narrowest := Mask(0)
		for _, h := range list {
			if h.nodes != 0 && (narrowest == 0 || h.nodes.Narrower(narrowest)) {
				narrowest = h.nodes
			}
		}
		most = max(most, narrowest.Count())
		all = append(all, list)
	}
	var best hint
	var permute func(i int, chosen []hint)
	permute = func(i int, chosen []hint) {
		if i == len(all) {
			best = compare(best, mergePermutation(machine, chosen), most)
			return
		}
		for _, h := range all[i] {
			permute(i+1, append(chosen, h))
		}
	}
	permute(0, nil)
	if best.nodes == 0 {
		return hint{machine, false}
	}
	return best
}

// mergePermutation is the function of that name.
func mergePermutation(machine Mask, permutation []hint) hint {
	merged := hint{machine, true}
	first := Mask(0)
	for _, h := range permutation {
		if h.nodes != 0 {
			if first == 0 {
				first = h.nodes
			}
			merged.nodes &= h.nodes
			merged.preferred = merged.preferred && h.nodes == first
		}
		merged.preferred = merged.preferred && h.preferred
	}
	return merged
}

// compare is HintMerger.compare, case by case.
func compare(current, candidate hint, most int) hint {
	narrower := func() hint {
		if candidate.nodes.Narrower(current.nodes) {
			return candidate
		}
		return current
	}
	have, get := current.nodes.Count(), candidate.nodes.Count()
	switch {
	case get == 0:
		return current
	case have == 0:
		return candidate
	case !current.preferred && candidate.preferred:
		return candidate
	case current.preferred && !candidate.preferred:
		return current
	case current.preferred && candidate.preferred:
		return narrower()
	case have > most: // case 1
		return narrower()
	case have == most: // case 2
		if get != most {
			return current
		}
		return narrower()
	case get > most: // case 3a
		return current
	case get == most: // case 3b
		return candidate
	case get > have: // case 3ca
		return candidate
	case get < have: // case 3cb
		return current
	default: // case 3cc
		return narrower()
	}
}
