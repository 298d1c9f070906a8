// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/plugins/rdma/sysfs"
	"github.com/tandem-k8s/tandem/topology"
)

// Routes are the netdevs with a default route.
type Routes struct {
	Main []string // in the main routing table: the node's own network
	// in another table only, as policy routing has it for each rail, or of IPv6 beside one of IPv4, as the
	// router of a rail announces it
	Other []string
}

// Reservation is why a device is not offered; the zero Reservation is none.
type Reservation struct {
	Reason string // a sentence about the device, "it is a PF that has VFs"
	// a selector that names the address of the device gets it all the same
	UnlessNamed bool
}

// Reservations are those for the node's own network, by the ID of a function or sub-function.
type Reservations map[string]Reservation

const carriesDefaultRoute = "the node itself needs its netdev"

// FindReservations returns the reservations for the netdevs with a default route in the main table, and for
// the netdevs below them: ports of a bond, team, bridge or Open vSwitch, the netdev below a VLAN, the VF below
// the synthetic netdev of a guest. The stock plugin knows the first ones only, so that the others can still be
// named. The notes are about netdevs with another default route, which are offered.
func (f Finder) FindReservations() (Reservations, []string, error) {
	found := Reservations{}
	if f.Routes == nil {
		return found, nil, nil
	}
	routes, err := f.Routes()
	if err != nil {
		return nil, nil, err
	}
	for _, netdev := range routes.Main {
		for _, id := range sysfs.Owners(f.Sys, netdev) {
			found[id] = Reservation{Reason: carriesDefaultRoute}
		}
	}
	for _, netdev := range routes.Main {
		f.reserveBelow(found, netdev, netdev, map[string]bool{})
	}
	var notes []string
	for _, netdev := range routes.Other {
		for _, id := range sysfs.Owners(f.Sys, netdev) {
			if _, reserved := found[id]; !reserved {
				const note = "%s: its netdev %q has a default route, though not the node's in the main routing " +
					"table: it is offered, if a resource selects it"
				notes = append(notes, fmt.Sprintf(note, id, netdev))
			}
		}
	}
	return found, notes, nil
}

// reserveBelow adds reservations for the netdevs below a netdev.
func (f Finder) reserveBelow(found Reservations, netdev, uplink string, seen map[string]bool) {
	if seen[netdev] {
		return
	}
	seen[netdev] = true
	for _, name := range topology.Names(f.Sys, sysfs.NetdevLink(netdev)) {
		lower, ok := strings.CutPrefix(name, "lower_")
		if !ok {
			continue
		}
		for _, id := range sysfs.Owners(f.Sys, lower) {
			if _, reserved := found[id]; !reserved {
				const why = "its netdev %q is below %q, which has the node's default route"
				found[id] = Reservation{fmt.Sprintf(why, lower, uplink), true}
			}
		}
		f.reserveBelow(found, lower, uplink, seen)
	}
}

// reservation returns why the device is not offered as a device of a type.
func (f *function) reservation(t DeviceType) Reservation {
	switch {
	case f.aux != "":
		return f.needed
	case t == Accelerator:
		return Reservation{}
	case f.ManagesNVSwitches:
		return Reservation{"it manages the node's NVSwitches (VPD: SMDL=SW_MNG)", true}
	case t == SharedHCA: // the node and its VFs may use the HCA too
		return Reservation{}
	case f.withVFs:
		return Reservation{Reason: "it is a PF that has VFs"}
	default:
		return f.needed
	}
}

// reserved returns why a selector of the resource does not get a device, "" for an unreserved device.
func (r *ResourceConfig) reserved(f *function, s *Selector) string {
	why := f.reservation(r.DeviceType)
	if why.UnlessNamed && slices.Contains(s.PCIAddresses, f.Address.String()) {
		return ""
	}
	return why.Reason
}
