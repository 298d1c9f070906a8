// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"iter"
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/claim"
)

// counts are numbers of pairs, GPUs alone, VFs alone and bundles.
type counts [4]int

// capped returns the sum of both, limited to want.
func (c counts) capped(more, want counts) counts {
	for i := range c {
		c[i] = min(c[i]+more[i], want[i])
	}
	return c
}

// Exists reports whether the devices of a claim are available now.
func (o *Oracle) Exists(s claim.Spec) bool { return o.exists(s, o.groups) }

// Unreserved reports whether they would be available without reserved VFs, and with all pairs published.
func (o *Oracle) Unreserved(s claim.Spec) bool { return o.exists(s, o.unreserved) }

func (o *Oracle) exists(s claim.Spec, groups []*group) bool {
	want := counts{s.Pairs, s.GPUs, s.VFs, s.Bundles}
	for _, fits := range choices(s, groups) {
		reached := map[counts]bool{{}: true}
		for _, g := range groups {
			most := 0
			if fits(g) {
				most = s.Pairs
			}
			if s.Distinct {
				most = min(most, 1)
			}
			next := maps.Clone(reached)
			for _, way := range o.ways(g, most) {
				for c := range reached {
					next[c.capped(way, want)] = true
				}
			}
			reached = next
		}
		if reached[want] {
			return true
		}
	}
	return false
}

// choices returns the sets of switches for the pairs: one set per value of the shared attribute.
func choices(s claim.Spec, groups []*group) []func(*group) bool {
	if s.Same == "" {
		return []func(*group) bool{func(*group) bool { return true }}
	}
	var list []func(*group) bool
	seen := map[string]bool{}
	for _, g := range groups {
		value, known := g.value(s)
		if !known || seen[value] {
			continue
		}
		seen[value] = true
		list = append(list, func(h *group) bool {
			other, known := h.value(s)
			return known && other == value
		})
	}
	return list
}

// value returns the shared attribute of the claim's pairs for the switch's GPUs.
func (g *group) value(s claim.Spec) (value string, known bool) {
	switch s.Same {
	case claim.NUMANode:
		_, known := g.numa.Number()
		return g.numa.String(), known
	case claim.Hive:
		return g.hive, g.hive != ""
	default:
		return g.at.String(), true
	}
}

// ways returns the maximal combinations of available devices of a switch, with at most the given number of
// pairs. Smaller combinations are available too.
func (o *Oracle) ways(g *group, pairs int) []counts {
	var list []counts
	for bundles := range subsets(o.untouched(g)) {
		used := map[string]bool{}
		for _, b := range bundles {
			for _, id := range slices.Concat(b.GPUs, b.VFs) {
				used[id] = true
			}
		}
		free := func(id string) bool { return o.holder[id] == "" && !used[id] }
		left := func(ids []string) (n int) {
			for _, id := range ids {
				if free(id) {
					n++
				}
			}
			return n
		}
		gpus, vfs := left(g.gpus), left(g.alone)
		for p := range min(pairs, matching(g.pairs, free)) + 1 {
			fromAlone := p
			if g.strict {
				fromAlone = 0
			}
			list = append(list, counts{p, gpus - p, vfs - fromAlone, len(bundles)})
		}
	}
	return list
}

// untouched returns the bundles that are completely free.
func (o *Oracle) untouched(g *group) (list []pool.Device) {
	for _, b := range g.bundles {
		if !slices.ContainsFunc(slices.Concat(b.GPUs, b.VFs), func(id string) bool { return o.holder[id] != "" }) {
			list = append(list, b)
		}
	}
	return list
}

// subsets yields every subset of disjoint devices.
func subsets(list []pool.Device) iter.Seq[[]pool.Device] {
	return func(yield func([]pool.Device) bool) {
		for mask := range 1 << len(list) {
			var subset []pool.Device
			for i, d := range list {
				if mask>>i&1 == 1 {
					subset = append(subset, d)
				}
			}
			if disjoint(subset) && !yield(subset) {
				return
			}
		}
	}
}

func disjoint(list []pool.Device) bool {
	seen := map[string]bool{}
	for _, d := range list {
		for _, id := range slices.Concat(d.GPUs, d.VFs) {
			if seen[id] {
				return false
			}
			seen[id] = true
		}
	}
	return true
}

// matching returns the maximum number of simultaneous pairs of free devices: the size of a maximum matching,
// by augmenting paths.
func matching(pairs map[string][]string, free func(id string) bool) (size int) {
	partner := map[string]string{} // by VF
	var augment func(gpu string, seen map[string]bool) bool
	augment = func(gpu string, seen map[string]bool) bool {
		for _, vf := range pairs[gpu] {
			if seen[vf] || !free(vf) {
				continue
			}
			seen[vf] = true
			if other, taken := partner[vf]; !taken || augment(other, seen) {
				partner[vf] = gpu
				return true
			}
		}
		return false
	}
	for gpu := range pairs {
		if free(gpu) && augment(gpu, map[string]bool{}) {
			size++
		}
	}
	return size
}
