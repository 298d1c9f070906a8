// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/topology"
)

// Present returns prepared claims with the IDs that their devices have on a machine. A claim has units, and
// an ID is the name of a unit at one moment: after a boot the ID can be another unit's. A unit that the
// machine lacks keeps its ID, or has its own name as ID while another unit has the ID. A device that an
// earlier driver recorded without its unit has its recorded ID, and the unit that has the ID.
func Present(machine pool.Machine, recorded []Claim) []Claim {
	n := newNodeIndex(State{Machine: machine})
	present := slices.Clone(recorded)
	for i := range present {
		present[i].Devices = n.presentDevices(recorded[i].Devices)
	}
	return present
}

// presentDevices returns the devices of a claim with their present IDs. Which unit With is, the device with
// the token records.
func (n *nodeIndex) presentDevices(recorded []Prepared) []Prepared {
	units := map[string]string{}
	for _, p := range recorded {
		maps.Copy(units, p.Units)
	}
	present := slices.Clone(recorded)
	for i := range present {
		p := &present[i]
		p.GPUs, p.VFs = slices.Clone(p.GPUs), slices.Clone(p.VFs)
		p.Token, p.With, p.Units = n.presentID(p.Token, units), n.presentID(p.With, units), nil
		for _, ids := range [][]string{p.GPUs, p.VFs} {
			for j, id := range ids {
				ids[j] = n.presentID(id, units)
				p.recordUnit(ids[j], coordination.ClaimUnitOf(id, units))
			}
		}
		p.recordUnit(p.Token, coordination.ClaimUnitOf(recorded[i].Token, units))
		if len(recorded[i].Units) == 0 {
			n.recordUnits(p)
		}
		if p.Parts == 0 { // of an earlier driver
			n.recordParts(p)
		}
	}
	return present
}

// presentID returns the present ID of a device with a recorded ID, by the recorded units.
func (n *nodeIndex) presentID(id string, units map[string]string) string {
	unit := coordination.ClaimUnitOf(id, units)
	has, isKnown := n.units[id]
	now, isThere := n.ids[unit]
	switch {
	case isKnown && has.Name == unit:
		return id
	case isThere:
		return now
	case isKnown && units[id] != "":
		return unit
	default:
		return id
	}
}

// recordUnit records the unit of a device, unless the ID is the unit's name.
func (p *Prepared) recordUnit(id, unit string) {
	if unit == topology.UnitOfID(id).Name {
		return
	}
	if p.Units == nil {
		p.Units = map[string]string{}
	}
	p.Units[id] = unit
}
