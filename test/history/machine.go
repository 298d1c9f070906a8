// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Machine has the devices of a node.
type Machine struct {
	Tree    *topology.Tree
	Devices map[string][]device.Device // by resource
	Kinds   map[string]device.Kind     // of the resources
}

// paired reports whether a container requests devices of both kinds.
func (m Machine) paired(c *Container) bool {
	var kinds []device.Kind
	for name, count := range c.Requests {
		if kind, known := m.Kinds[name]; known && count > 0 && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return len(kinds) == 2
}

// placed returns devices of a resource for package placement.
func (m Machine) placed(resource string, ids []string) (all []placement.Device) {
	for _, d := range m.Devices[resource] {
		if slices.Contains(ids, d.ID) {
			all = append(all, placement.Device{ID: d.ID, Address: d.Address})
		}
	}
	return all
}

// halves is a request of a container: a half for each resource.
type halves map[string]placement.Half

// with returns the request with devices of a resource that are held instead of chosen.
func (h halves) with(resource string, held []placement.Device) halves {
	changed := maps.Clone(h)
	changed[resource] = placement.Half{Count: len(held), Held: held}
	return changed
}

// pairs counts the pairs of a container by distance, the nearest first.
type pairs [topology.Levels]int

// best returns the best pairs that a request permits.
func (m Machine) best(request halves) (p pairs, err error) {
	var r placement.Request
	for name, half := range request {
		if kind, known := m.Kinds[name]; known {
			kind.AddTo(&r, half)
		}
	}
	choice, err := placement.Choose(m.Tree, r)
	if err != nil {
		return p, fmt.Errorf("judge pairs: %w", err)
	}
	for _, pair := range choice.Pairs {
		p[pair.Distance.Level]++
	}
	return p, nil
}

// apart returns the number of pairs on different switches.
func (p pairs) apart() int {
	count := 0
	for level, n := range p {
		if !topology.Level(level).Direct() {
			count += n
		}
	}
	return count
}

// String returns the numbers of pairs by distance.
func (p pairs) String() string {
	var parts []string
	for level, n := range p {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %v", n, topology.Level(level)))
		}
	}
	return or(strings.Join(parts, ", "), "none")
}
