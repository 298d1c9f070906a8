// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/topology"
)

// group has the GPUs and VFs of one switch.
type group struct {
	at      topology.Address // of one of its cards
	cards   []topology.Address
	gpus    []string
	vfs     []string
	pairs   map[string][]string // by GPU: the VFs that pair with it
	alone   []string            // VFs outside pairs
	strict  bool                // VFs go with a GPU or alone, none both ways
	bundles []pool.Device
	numa    topology.NUMANode // of its GPUs
	hive    string            // likewise
}

// groups groups GPUs, and the published VFs, by switch.
func groups(m pool.Machine, published map[string]bool) ([]*group, error) {
	var list []*group
	for _, gpu := range m.GPUs {
		list = join(m.Tree, list, &group{
			cards: []topology.Address{gpu.Card}, gpus: []string{gpu.ID}, numa: gpu.NUMA, hive: gpu.Hive,
		})
	}
	for _, vf := range m.VFs {
		if published[vf.ID] {
			list = join(m.Tree, list, &group{cards: []topology.Address{vf.Address}, vfs: []string{vf.ID}})
		}
	}
	for _, g := range list {
		g.at, g.pairs = g.cards[0], map[string][]string{}
		for _, gpu := range m.GPUs {
			if slices.Contains(g.gpus, gpu.ID) && (g.numa != gpu.NUMA || g.hive != gpu.Hive) {
				const apart = "GPU %s is on another NUMA node or in another hive than %s of its switch"
				return nil, fmt.Errorf(apart, gpu.ID, g.gpus[0])
			}
		}
	}
	return list, nil
}

// join adds a card to a list of groups. The card joins all groups with a card on its switch: in a C2C complex
// a NIC is near GPUs that are not near one another.
func join(tree *topology.Tree, list []*group, card *group) (joined []*group) {
	at := card.cards[0]
	first := card
	for _, g := range list {
		near := slices.ContainsFunc(g.cards, func(other topology.Address) bool {
			return other == at || tree.Distance(other, at).Level.Direct()
		})
		switch {
		case !near:
			joined = append(joined, g)
		case first == card:
			first = g
			g.add(card)
			joined = append(joined, g)
		default:
			first.add(g)
		}
	}
	if first == card {
		joined = append(joined, card)
	}
	return joined
}

// add moves the devices of another group.
func (g *group) add(other *group) {
	g.cards = append(g.cards, other.cards...)
	g.gpus, g.vfs = append(g.gpus, other.gpus...), append(g.vfs, other.vfs...)
}

// assign sets the VFs of each GPU, and checks the published devices against the rules.
func (g *group) assign(devices map[string]pool.Device, counters, all bool) error {
	got, gpus := map[pool.Type]int{}, map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		d := devices[name]
		if !g.has(d) {
			continue
		}
		got[d.Type]++
		switch d.Type {
		case pool.TypeBundle:
			g.bundles = append(g.bundles, d)
		case pool.TypeVF:
			g.alone = append(g.alone, d.VFs[0])
		case pool.TypeGPU:
			gpus[d.GPUs[0]]++
		case pool.TypePair:
			g.pairs[d.GPUs[0]] = append(g.pairs[d.GPUs[0]], d.VFs[0])
		case pool.TypeGPUVF:
			gpus[d.GPUs[0]]++
			g.pairs[d.GPUs[0]] = append(g.pairs[d.GPUs[0]], d.VFs[0])
		}
	}
	g.strict = !counters || len(g.vfs) > len(g.gpus)
	if want := g.want(counters, all, got); !maps.Equal(got, want) {
		return fmt.Errorf("the switch of %s publishes %v, want %v", g.at, got, want)
	}
	if len(gpus) != len(g.gpus) {
		return fmt.Errorf("the switch of %s publishes GPUs %v, want each once", g.at, gpus)
	}
	return g.checkVFs()
}

// want returns the number of devices of each type by the rules. If not all pairs are published, at least one
// per VF is, and no GPU is in two.
func (g *group) want(counters, all bool, got map[pool.Type]int) map[pool.Type]int {
	gpus, vfs := len(g.gpus), len(g.vfs)
	paired := min(gpus, vfs)
	want := map[pool.Type]int{
		pool.TypeGPU: gpus, pool.TypePair: paired, pool.TypeVF: vfs - paired, pool.TypeBundle: len(g.bundles),
	}
	switch {
	case !counters:
		want = map[pool.Type]int{pool.TypeGPUVF: paired, pool.TypeGPU: gpus - paired, pool.TypeVF: vfs - paired}
	case !g.strict && all:
		want[pool.TypePair], want[pool.TypeVF] = gpus*vfs, vfs
	case !g.strict:
		want[pool.TypePair], want[pool.TypeVF] = min(max(got[pool.TypePair], vfs), gpus), vfs
	}
	maps.DeleteFunc(want, func(_ pool.Type, count int) bool { return count == 0 })
	return want
}

// most is the maximum number of sets of pairs on a node with all pairs published.
const most = 1 << 13

// few reports whether all pairs of switches without reserved VFs are published, because they make few sets.
func few(groups []*group) bool {
	sets := 1
	for _, g := range groups {
		if len(g.vfs) <= len(g.gpus) {
			sets *= matchings(len(g.gpus), len(g.vfs))
		}
		if sets > most {
			return false
		}
	}
	return true
}

// matchings returns the number of sets of pairs of GPUs and VFs with each device in at most one pair.
func matchings(gpus, vfs int) int {
	if gpus == 0 || vfs == 0 {
		return 1
	}
	without := matchings(gpus-1, vfs)
	if without > most {
		return without
	}
	return without + vfs*matchings(gpus-1, vfs-1)
}

// checkVFs checks that every VF is published, and none in two forms that exclude each other.
func (g *group) checkVFs() error {
	seen := map[string]int{}
	for _, vfs := range g.pairs {
		for _, vf := range vfs {
			seen[vf]++
			if g.strict && seen[vf] > 1 {
				return fmt.Errorf("VF %s goes with two GPUs", vf)
			}
		}
	}
	for _, vf := range g.alone {
		if seen[vf] > 0 && g.strict {
			return fmt.Errorf("VF %s goes with a GPU and alone", vf)
		}
		seen[vf]++
	}
	for _, vf := range g.vfs {
		if seen[vf] == 0 || !g.strict && !slices.Contains(g.alone, vf) {
			return fmt.Errorf("VF %s cannot be had", vf)
		}
	}
	return nil
}

// unreserved returns the switch as if any VF could be paired with any GPU, or be allocated alone.
func (g *group) unreserved() *group {
	all := *g
	all.alone, all.strict, all.pairs = g.vfs, false, map[string][]string{}
	for _, gpu := range g.gpus {
		all.pairs[gpu] = g.vfs
	}
	return &all
}

// has reports whether a device is of this switch.
func (g *group) has(d pool.Device) bool {
	if len(d.GPUs) > 0 {
		return slices.Contains(g.gpus, d.GPUs[0])
	}
	return slices.Contains(g.vfs, d.VFs[0])
}
