// SPDX-License-Identifier: Apache-2.0

package holders

import "github.com/tandem-k8s/tandem/topology"

// Units are holders by what they have of the node, whatever the names of the resources. The kubelet counts
// devices by resource name and ID, and would give a unit of two names to two containers.
type Units struct {
	unitOf   func(resource, id string) topology.Unit
	units    map[topology.Unit]Held // of several with a shared unit, any
	replicas map[device]Held
	parts    map[string]Held // by function: of several with a MIG device, any
}

// Held is a device as its holder got it.
type Held struct {
	*Holder
	Resource, ID string
}

// ByUnit returns the holders by unit. An app container takes precedence over init containers of its pod.
func (h Holders) ByUnit(unitOf func(resource, id string) topology.Unit) *Units {
	u := &Units{unitOf, map[topology.Unit]Held{}, map[device]Held{}, map[string]Held{}}
	for i := range h {
		for d := range h[i].devices() {
			unit, held := unitOf(d.resource, d.id), Held{&h[i], d.resource, d.id}
			put(u.units, unit, held)
			if function, isMIG := unit.MIGFunction(); isMIG {
				put(u.parts, function, held)
			}
			if unit.Shared {
				put(u.replicas, d, held)
			}
		}
	}
	return u
}

func put[K comparable](all map[K]Held, key K, held Held) {
	if _, known := all[key]; !known || !held.Init {
		all[key] = held
	}
}

// Of returns the holder that excludes other containers from a device, nil for none.
func (u *Units) Of(resource, id string) *Holder {
	held, _ := u.find(resource, id)
	return held.Holder
}

// Elsewhere returns the holder of a device under another name; false for none.
func (u *Units) Elsewhere(resource, id string) (held Held, found bool) {
	held, found = u.find(resource, id)
	return held, found && (held.Resource != resource || held.ID != id)
}

// find returns the device whose holder excludes other containers from a device: a shared unit is excluded by
// a container that has the unit alone, and by the container of the same replica; a whole GPU and its MIG
// devices exclude each other, which only a GPU that was repartitioned under its containers can have.
func (u *Units) find(resource, id string) (held Held, found bool) {
	unit := u.unitOf(resource, id)
	if held, found = u.units[topology.Unit{Name: unit.Name}]; found {
		return held, true
	}
	if unit.Shared {
		held, found = u.replicas[device{resource, id}]
	} else {
		held, found = u.units[topology.Unit{Name: unit.Name, Shared: true}]
	}
	if found {
		return held, true
	}
	function, isMIG := unit.MIGFunction()
	if !isMIG {
		held, found = u.parts[unit.Name]
		return held, found
	}
	for _, shared := range []bool{false, true} {
		if held, found = u.units[topology.Unit{Name: function, Shared: shared}]; found {
			return held, true
		}
	}
	return held, false
}
