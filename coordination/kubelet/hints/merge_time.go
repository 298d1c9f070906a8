// SPDX-License-Identifier: Apache-2.0

package hints

import (
	"fmt"
	"math"
)

// MergeTime is the kubelet's CPU time for a container with policy restricted or best-effort, in seconds:
// HintMerger.Merge (pkg/kubelet/cm/topologymanager/policy.go) tries every combination of a hint of each
// resource, and the kubelet admits no other pod meanwhile (kubernetes#137700).
type MergeTime float64

// perCombination is a fit through the times of kubelet 1.37.1, from 9 combinations in 3 µs to 17 million in
// 6.4 s: 0.27 to 0.42 µs each.
const perCombination MergeTime = 0.386e-6

// Slow reports whether other pods of the node wait for a noticeable time.
func (t MergeTime) Slow() bool { return t >= 1 }

// Hangs reports whether the kubelet appears to hang.
func (t MergeTime) Hangs() bool { return t >= 60 }

// String returns the time with two digits and a unit: "19 ms", "6.4 s", "27 min".
func (t MergeTime) String() string {
	const minute, hour, day, year = 60, 3600, 24 * 3600, 365 * 24 * 3600
	for _, u := range []struct {
		name        string
		unit, until MergeTime
	}{
		{"µs", 1e-6, 1e-3}, {"ms", 1e-3, 1}, {"s", 1, 2 * minute}, {"min", minute, 2 * hour},
		{"hours", hour, 2 * day}, {"days", day, 2 * year},
	} {
		if t < u.until {
			return amount(t/u.unit) + " " + u.name
		}
	}
	return amount(t/year) + " years"
}

// amount returns a number with two digits, or all digits before the point.
func amount(n MergeTime) string {
	if n < 10 {
		return fmt.Sprintf("%.2g", float64(n))
	}
	return fmt.Sprintf("%.0f", float64(n))
}

// MergeTime estimates the kubelet's CPU time for the merge of the hints of all demands of a container. Under
// the policies none and single-numa-node, which combine no wide sets, the time is 0.
func (r Rule) MergeTime(demands ...Demand) MergeTime {
	if r.Policy == None || r.Policy == SingleNUMANode {
		return 0
	}
	needs := r.needs(demands)
	if r.tooMany(needs) || len(needs) == 0 {
		return 0
	}
	combinations := 1.0
	for i := range needs {
		combinations *= needs[i].hintCount()
	}
	return MergeTime(combinations) * perCombination
}

// hintCount returns the number of hints of a demand. Without a hint the kubelet uses one that nobody prefers.
func (n *need) hintCount() float64 {
	if nodes := n.nodes.Count(); nodes > 2*MaxNodes { // all sets at most, instead of 2^nodes steps
		return math.Exp2(float64(nodes)) - 1
	}
	count := 0
	for m := range n.nodes.subsets() {
		if n.met(m) {
			count++
		}
	}
	return float64(max(count, 1))
}
