// SPDX-License-Identifier: Apache-2.0

package model

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/topology"
)

// TestHintsOfADemand: a demand in the form of hints has the same influence as the demand.
func TestHintsOfADemand(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	demand := func() (d Demand) {
		d.Count = random.IntN(5)
		for range random.IntN(12) {
			node := topology.Node(random.IntN(4))
			d.All.Add(node)
			if random.IntN(3) > 0 {
				d.Free.Add(node)
			}
		}
		return d
	}
	for range 10_000 {
		r := Rule{Policy: []Policy{Restricted, BestEffort, SingleNUMANode}[random.IntN(3)]}
		a, b := demand(), demand()
		want, admitted := r.Merge([]Demand{a, b})
		if got, also := r.Merge([]Demand{a}, r.Hints(b)); got != want || also != admitted {
			t.Fatalf("%s, %+v, %+v: %+v, %v; as hints %+v, %v", r.Policy, a, b, want, admitted, got, also)
		}
	}
}

// everywhere is a demand for some of the devices of a resource with devices on each of n NUMA nodes.
func everywhere(n, count int) Demand {
	d := Demand{Count: count}
	for node := range n {
		d.All.Add(topology.Node(node))
		d.Free.Add(topology.Node(node))
	}
	return d
}

// TestMergeTimeIsTheMeasuredOne: the estimate differs from the time of kubelet 1.37.1 by less than half.
func TestMergeTimeIsTheMeasuredOne(t *testing.T) {
	t.Parallel()
	for _, measured := range []struct {
		nodes, resources int
		seconds          MergeTime
		text             string
	}{
		{2, 2, 3e-6, "3.5 µs"}, {2, 4, 25e-6, "31 µs"},
		{4, 2, 66e-6, "87 µs"}, {4, 3, 1.4e-3, "1.3 ms"}, {4, 4, 14e-3, "20 ms"},
		{8, 1, 70e-6, "98 µs"}, {8, 2, 18.9e-3, "25 ms"}, {8, 3, 6.4, "6.4 s"}, {8, 4, 27 * 60, "27 min"},
	} {
		demands := slices.Repeat([]Demand{everywhere(measured.nodes, 1)}, measured.resources)
		got := Rule{Policy: Restricted}.MergeTime(demands...)
		if got < measured.seconds/1.5 || got > measured.seconds*1.5 || got.String() != measured.text {
			t.Errorf("%d NUMA nodes, %d resources: %v, measured %v", measured.nodes, measured.resources, got,
				measured.seconds)
		}
	}
}

// TestMergeTimeOfRequests: only sets with enough free devices are hints, and resources without influence cost
// nothing.
func TestMergeTimeOfRequests(t *testing.T) {
	t.Parallel()
	eight := everywhere(8, 1)
	taken := everywhere(8, 1)
	taken.Free = taken.Free[:1] // 128 sets contain node 0
	nodeless := Demand{Count: 1}
	nodeless.All.Add(topology.NUMANode{})
	for name, test := range map[string]struct {
		rule    Rule
		demands []Demand
		want    float64 // combinations
	}{
		"all devices":         {Rule{Policy: Restricted}, []Demand{everywhere(8, 8), everywhere(8, 8)}, 1},
		"seven devices":       {Rule{Policy: Restricted}, []Demand{everywhere(8, 7)}, 9},
		"one free device":     {Rule{Policy: BestEffort}, []Demand{taken, eight}, 128 * 255},
		"no free device":      {Rule{Policy: Restricted}, []Demand{{Count: 1, All: eight.All}, eight}, 255},
		"without NUMA nodes":  {Rule{Policy: Restricted}, []Demand{nodeless, eight}, 255},
		"nothing":             {Rule{Policy: Restricted}, nil, 0},
		"policy none":         {Rule{Policy: PolicyNone}, []Demand{eight, eight}, 0},
		"one node alone":      {Rule{Policy: SingleNUMANode}, []Demand{eight, eight}, 0},
		"the kubelet is away": {Rule{Policy: Restricted}, []Demand{everywhere(10, 1)}, 0},
		"ten nodes":           {Rule{Policy: Restricted, MaxNodes: 10}, []Demand{everywhere(10, 1)}, 1023},
		"34 nodes":            {Rule{Policy: Restricted, MaxNodes: 34}, []Demand{everywhere(34, 1)}, 1<<34 - 1},
	} {
		if got := test.rule.MergeTime(test.demands...); got != MergeTime(test.want)*perCombination {
			t.Errorf("%s: %.0f combinations, want %.0f", name, got/perCombination, test.want)
		}
	}
}

func TestMergeTimeInWords(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[MergeTime]string{
		6.4: "6.4 s", 59.6: "60 s", 1632: "27 min", 3 * 3600: "3 hours", 5 * 86400: "5 days", 1e9: "32 years",
	} {
		if got := seconds.String(); got != want {
			t.Errorf("%v s: %q, want %q", float64(seconds), got, want)
		}
	}
	if !MergeTime(6.4).Slow() || MergeTime(6.4).Hangs() || !MergeTime(258).Hangs() || MergeTime(0.9).Slow() {
		t.Error("6.4 s are slow, and 258 s hang")
	}
}
