// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/topology"
)

// newSwitches returns the switches with the places of devices, by path. Devices outside the tree are in an
// entry "unknown" of their own.
func newSwitches(tree *topology.Tree, resources []*device.Resource) []v1alpha1.Switch {
	var switches []v1alpha1.Switch
	for top, spots := range findSpots(tree, resources) {
		switches = append(switches, newSwitch(top, spots))
	}
	slices.SortFunc(switches, func(a, b v1alpha1.Switch) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Name, b.Name))
	})
	return switches
}

// spot is the common position of devices that share all their bridges.
type spot struct {
	chain      []string
	redirected int
	numa       topology.NUMANode
	devices    set
}

// findSpots returns the positions of devices by switch: the topmost shared bridge, else the root complex.
func findSpots(tree *topology.Tree, resources []*device.Resource) map[string][]*spot {
	known, found := map[string]*spot{}, map[string][]*spot{}
	for _, r := range resources {
		for number, d := range r.Ordered() {
			chain := []string{cmp.Or(tree.Top(d.Address), v1alpha1.UnknownPath)}
			for _, bridge := range tree.SharedBridges(d.Address) {
				chain = append(chain, bridge.String())
			}
			redirected := tree.Redirected(d.Address)
			key := fmt.Sprint(chain, redirected)
			s := known[key]
			if s == nil {
				s = &spot{chain: chain, redirected: redirected, devices: set{}}
				known[key] = s
				found[tree.Switch(d.Address)] = append(found[tree.Switch(d.Address)], s)
			}
			s.numa = s.numa.Lower(tree.NUMA(d.Address))
			s.devices.addNumber(r.Name, number)
		}
	}
	return found
}

// newSwitch returns the entry of spots below one switch.
func newSwitch(top string, spots []*spot) v1alpha1.Switch {
	shared := spots[0].chain
	for _, s := range spots[1:] {
		n := 0
		for n < min(len(shared), len(s.chain)) && shared[n] == s.chain[n] {
			n++
		}
		shared = shared[:n]
	}
	entry := v1alpha1.Switch{
		Name: top, Path: strings.Join(shared, "/"), Alone: !topology.IsSwitch(top),
		Redirected: spots[0].redirected,
	}
	var numa topology.NUMANode
	all := set{}
	for _, s := range spots {
		numa = numa.Lower(s.numa)
		entry.Redirected = min(entry.Redirected, s.redirected)
		for resource, numbers := range s.devices {
			all[resource] = append(all[resource], numbers...)
		}
	}
	if number, known := numa.Number(); known {
		entry.NUMA = new(number)
	}
	entry.Devices = all.sets()
	for _, s := range spots {
		if len(s.chain) > len(shared) || s.redirected != entry.Redirected {
			entry.Below = append(entry.Below, v1alpha1.Below{
				Path: strings.Join(s.chain[len(shared):], "/"), Redirected: s.redirected, Devices: s.devices.sets(),
			})
		}
	}
	slices.SortFunc(entry.Below, func(a, b v1alpha1.Below) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Redirected, b.Redirected))
	})
	return entry
}
