// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// Placed is a device of the object with its PCI function; for a partition, the card's function.
type Placed struct {
	Resource string
	Number   int
	Address  topology.Address
}

// UnknownPath is the path of devices outside the tree.
const UnknownPath = "unknown"

// SwitchesOf returns the object's switches with the places of devices, by path. Devices outside the tree are
// in an entry "unknown" of their own.
func SwitchesOf(tree *topology.Tree, devices []Placed) []Switch {
	groups := map[string][]*spot{}
	for _, s := range spots(tree, devices) {
		groups[s.top] = append(groups[s.top], s)
	}
	var switches []Switch
	for _, top := range slices.Sorted(maps.Keys(groups)) {
		switches = append(switches, newSwitch(top, groups[top]))
	}
	slices.SortFunc(switches, func(a, b Switch) int { return cmp.Compare(a.Path, b.Path) })
	return switches
}

// spot is the common position of devices that share all their bridges.
type spot struct {
	top        string // the switch: the topmost shared bridge, else the root complex
	chain      []string
	redirected int
	numa       topology.NUMANode
	devices    map[string]topology.CPUSet
}

func spots(tree *topology.Tree, devices []Placed) []*spot {
	type key struct {
		chain      string
		redirected int
	}
	found := map[key]*spot{}
	var order []*spot
	for _, d := range devices {
		chain := []string{UnknownPath}
		if top := tree.Top(d.Address); top != "" {
			chain[0] = top
		}
		for _, bridge := range tree.SharedBridges(d.Address) {
			chain = append(chain, bridge.String())
		}
		k := key{strings.Join(chain, "/"), tree.Redirected(d.Address)}
		s := found[k]
		if s == nil {
			s = &spot{
				top: tree.Switch(d.Address), chain: chain, redirected: k.redirected,
				devices: map[string]topology.CPUSet{},
			}
			found[k] = s
			order = append(order, s)
		}
		s.numa = s.numa.Lower(tree.NUMA(d.Address))
		if s.devices[d.Resource] == nil {
			s.devices[d.Resource] = topology.CPUSet{}
		}
		s.devices[d.Resource][d.Number] = true
	}
	return order
}

// newSwitch returns the entry of spots below one switch.
func newSwitch(top string, spots []*spot) Switch {
	shared := spots[0].chain
	for _, s := range spots[1:] {
		n := 0
		for n < min(len(shared), len(s.chain)) && shared[n] == s.chain[n] {
			n++
		}
		shared = shared[:n]
	}
	entry := Switch{
		Name: top, Path: strings.Join(shared, "/"), Alone: !topology.IsSwitch(top),
		Redirected: spots[0].redirected,
	}
	var numa topology.NUMANode
	all := map[string]topology.CPUSet{}
	for _, s := range spots {
		numa = numa.Lower(s.numa)
		entry.Redirected = min(entry.Redirected, s.redirected)
		for resource, devices := range s.devices {
			if all[resource] == nil {
				all[resource] = topology.CPUSet{}
			}
			maps.Copy(all[resource], devices)
		}
	}
	if number, known := numa.Number(); known {
		entry.NUMA = new(number)
	}
	entry.Devices = sets(all)
	for _, s := range spots {
		if len(s.chain) > len(shared) || s.redirected != entry.Redirected {
			entry.Below = append(entry.Below, Below{
				Path: strings.Join(s.chain[len(shared):], "/"), Redirected: s.redirected, Devices: sets(s.devices),
			})
		}
	}
	slices.SortFunc(entry.Below, func(a, b Below) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Redirected, b.Redirected))
	})
	return entry
}

func sets(devices map[string]topology.CPUSet) map[string]Set {
	published := make(map[string]Set, len(devices))
	for resource, numbers := range devices {
		published[resource] = Set(numbers.String())
	}
	return published
}
