// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/test/model/topologymanager"
	"github.com/tandem-k8s/tandem/test/scale"
	"github.com/tandem-k8s/tandem/topology"
)

// on lists count devices on each of the given NUMA nodes.
func on(count int, nodes ...int) PerNode {
	var devices PerNode
	for _, n := range nodes {
		for range count {
			devices.Add(topology.Node(n))
		}
	}
	return devices
}

// Policy none rejects no container, and gives no NUMA nodes.
func TestNone(t *testing.T) {
	t.Parallel()
	full := Demand{Count: 2, All: on(4, 0, 1), Free: on(1, 0, 1)}
	if nodes, admitted := PolicyNone.Nodes(full); nodes != 0 || !admitted {
		t.Errorf("policy none: nodes %b, admitted %v", nodes, admitted)
	}
}

func TestRestricted(t *testing.T) {
	t.Parallel()
	eight, thirtyTwo := on(4, 0, 1), on(16, 0, 1)
	for name, tc := range map[string]struct {
		demands []Demand
		want    []int
		refused bool
	}{
		"taken over from a node with no room": {
			demands: []Demand{{Count: 2, All: eight, Free: on(1, 0, 1), Reused: on(1, 1)}}, refused: true,
		},
		"taken over from the other node": {
			demands: []Demand{{Count: 2, All: eight, Free: on(4, 0, 1), Reused: on(1, 1)}}, want: []int{1},
		},
		"nothing asked": {},
		"no node known": {
			demands: []Demand{{Count: 4, All: on(8, -1), Free: on(8, -1)}},
		},
		"the lowest node wins a tie": {demands: []Demand{{Count: 4, All: eight, Free: eight}},
			want: []int{0}},
		"a full node is passed over": {demands: []Demand{{Count: 4, All: eight, Free: on(4, 1)}},
			want: []int{1}},
		"more than a node holds takes both": {demands: []Demand{{Count: 5, All: eight, Free: eight}},
			want: []int{0, 1}},
		"8+8 with one VF per PF": {
			demands: []Demand{{Count: 8, All: eight, Free: eight}, {Count: 8, All: eight, Free: eight}},
			want:    []int{0, 1},
		},
		"8+8 with four VFs per PF is refused": {
			demands: []Demand{{Count: 8, All: eight, Free: eight}, {Count: 8, All: thirtyTwo, Free: thirtyTwo}},
			refused: true,
		},
		"8+8 with VFs that tell no node": {
			demands: []Demand{{Count: 8, All: eight, Free: eight}, {Count: 8, All: on(32, -1), Free: on(32, -1)}},
			want:    []int{0, 1},
		},
		"2+2 with one free on each node refused": {
			demands: []Demand{{Count: 2, All: eight, Free: on(1, 0, 1)}, {Count: 2, All: eight, Free: eight}},
			refused: true,
		},
		"both kinds have to fit on one node": {
			demands: []Demand{{Count: 4, All: eight, Free: on(4, 0)}, {Count: 4, All: eight, Free: on(4, 1)}},
			refused: true,
		},
		"more nodes than the kubelet allows": {
			demands: []Demand{{Count: 1, All: on(1, 0, 1, 2, 3, 4, 5, 6, 7, 8), Free: nil}}, refused: true,
		},
		"as many nodes as the kubelet allows": {
			demands: []Demand{{Count: 1, All: on(1, 0, 1, 2, 3, 4, 5, 6, 7), Free: on(1, 7)}}, want: []int{7},
		},
		"node numbers may have holes": {
			demands: []Demand{{Count: 2, All: on(2, 0, 8), Free: on(2, 8)}}, want: []int{8},
		},
		"more than there is": {demands: []Demand{{Count: 9, All: eight, Free: eight}},
			refused: true},
		"a resource of which nothing is asked": {
			demands: []Demand{{Count: 4, All: eight, Free: eight}, {Count: 0, All: eight, Free: nil}}, want: []int{0},
		},
		"none of what has nodes is asked": {
			demands: []Demand{{Count: 4, All: on(8, -1), Free: on(8, -1)}, {Count: 0, All: eight, Free: eight}},
		},
		"three nodes, two needed, the lowest pair": {
			demands: []Demand{{Count: 4, All: on(2, 0, 1, 2), Free: on(2, 1, 2)}}, want: []int{1, 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := Restricted.Nodes(tc.demands...)
			if ok == tc.refused || !slices.Equal(got.Numbers(), tc.want) {
				t.Errorf("got %v, %v; want %v, %v", got.Numbers(), ok, tc.want, !tc.refused)
			}
		})
	}
}

// TestManyNodesAreRefusedAtOnce: the kubelet does not start with more NUMA nodes than MaxNodes, and the rule
// refuses each container, without looking at all sets of nodes: of 48 nodes there are 2^48.
func TestManyNodesAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	demand := Demand{Count: 1}
	for node := range 48 {
		demand.All.Add(topology.Node(node))
		demand.Free.Add(topology.Node(node))
	}
	answers := make(chan [3]bool, 1)
	go func() {
		_, admitted := Restricted.Nodes(demand)
		r := Rule{Policy: Restricted}
		answers <- [...]bool{admitted, r.Width(demand) > 0, !r.TooMany(demand)}
	}()
	select {
	case got := <-answers:
		if got != [3]bool{} {
			t.Errorf("48 NUMA nodes: admitted, wide, few: %v", got)
		}
	case <-time.After(5 * time.Second):
		t.Error("no answer in 5 s")
	}
}

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
