// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/test/model/topologymanager"
	"github.com/tandem-k8s/tandem/test/scale"
	"github.com/tandem-k8s/tandem/topology"
)

// TestAsTheKubeletMerges compares the rule with the model that goes through all permutations of hints, as the
// kubelet does.
func TestAsTheKubeletMerges(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 0))
	outcomes := map[string]int{}
	for range scale.Rounds(100_000) {
		machine := machines[rng.IntN(len(machines))]
		demands, resources := make([]Demand, 1+rng.IntN(3)), []topologymanager.Resource{}
		for i := range demands {
			var r topologymanager.Resource
			demands[i], r = randomDemand(rng, machine)
			resources = append(resources, r)
		}
		var lists []Hints
		var others [][]topologymanager.Hint
		for range rng.IntN(3) {
			list, other := randomList(rng, machine)
			lists, others = append(lists, list), append(others, other)
		}
		rule := Rule{Machine: machine, Distances: randomDistances(rng, machine)}
		for _, rule.Policy = range []Policy{Restricted, BestEffort, SingleNUMANode} {
			kubelet := topologymanager.Manager{
				Policy: string(rule.Policy), Nodes: machine.Numbers(), Distances: rule.Distances,
			}
			want, wantAdmitted := kubelet.Affinity(resources, others...)
			got, admitted := rule.Nodes(demands, lists...)
			if got == 0 && admitted && rule.Policy != SingleNUMANode {
				got = machine
			}
			if admitted != wantAdmitted || admitted && !slices.Equal(got.Numbers(), want) {
				t.Fatalf("%s, nodes %v, %v, %+v, %+v:\ngot %v, %t; the kubelet %v, %t", rule.Policy, machine.Numbers(),
					rule.Distances, demands, lists, got.Numbers(), admitted, want, wantAdmitted)
			}
			outcomes[fmt.Sprintf("%s admitted %t", rule.Policy, admitted)]++
		}
	}
	for what, n := range outcomes {
		if n < scale.Rounds(5000) {
			t.Errorf("there is little to compare: %s %d times", what, n)
		}
	}
	if len(outcomes) != 5 {
		t.Errorf("there is little to compare: %v", outcomes)
	}
}

// machines are sets of NUMA nodes.
var machines = []Mask{1, 0b11, 0b111, 0b1111, 0b100000001, 1<<63 | 1}

// randomDemand asks for devices of which some nodes have none, some are taken, and some are an init
// container's.
func randomDemand(rng *rand.Rand, machine Mask) (d Demand, r topologymanager.Resource) {
	for _, n := range machine.Numbers() {
		node := topology.Node(n)
		for range rng.IntN(4) {
			d.All.Add(node)
			r.All = append(r.All, node)
			switch rng.IntN(8) {
			case 0, 1:
				continue
			case 2:
				d.Reused.Add(node)
				r.Reusable = append(r.Reusable, node)
			default:
				r.Free = append(r.Free, node)
			}
			d.Free.Add(node)
		}
	}
	if rng.IntN(8) == 0 {
		d, r = Demand{}, topologymanager.Resource{} // excludeTopology
	}
	d.Count, d.Named = rng.IntN(6), true
	r.Count = d.Count
	return d, r
}

// randomList are hints of a CPU or memory manager: none, no possible ones, or sets of nodes of which some are
// preferred.
func randomList(rng *rand.Rand, machine Mask) (list Hints, others []topologymanager.Hint) {
	add := func(m Mask, preferred bool) {
		list = append(list, Hint{m, preferred})
		others = append(others, topologymanager.Hint{Nodes: m.Numbers(), Preferred: preferred})
	}
	switch rng.IntN(8) {
	case 0:
		return nil, nil
	case 1:
		return Hints{}, []topologymanager.Hint{}
	case 2:
		add(0, rng.IntN(2) == 0)
		return list, others
	}
	list, others = Hints{}, []topologymanager.Hint{}
	width := 1 + rng.IntN(2)
	for m := machine; m != 0; m = (m - 1) & machine {
		if rng.IntN(4) > 0 {
			add(m, m.Count() == width)
		}
	}
	return list, others
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
