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
func (m model) placed(in input, resource string, ids []string) []placement.Device {
	var all []placement.Device
	for _, d := range m.devices(in, resource) {
		if slices.Contains(ids, d.ID) {
			all = append(all, d.Placed())
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

// outcome is what a container gets by the best choice for its request.
type outcome struct {
	pairs
	ill int // degraded devices
}

// best returns the best outcome that a request permits.
func (m Machine) best(request halves) (outcome, error) {
	var r placement.Request
	for name, half := range request {
		if kind, known := m.Kinds[name]; known {
			kind.AddTo(&r, half)
		}
	}
	choice, err := placement.Choose(m.Tree, r)
	if err != nil {
		return outcome{}, fmt.Errorf("judge pairs: %w", err)
	}
	var o outcome
	for _, pair := range choice.Pairs {
		o.pairs[pair.Distance.Level]++
	}
	for _, d := range slices.Concat(choice.GPUs, choice.VFs) {
		if d.Degraded {
			o.ill++
		}
	}
	return o, nil
}

// String returns the outcome in words.
func (o outcome) String() string {
	if o.ill == 0 {
		return o.pairs.String()
	}
	return fmt.Sprintf("%v with %d degraded devices", o.pairs, o.ill)
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
