// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/topology"
)

// claim claims the unclaimed devices that the resource selects, selector by selector.
func (r *ResourceConfig) claim(candidates []*function, claimed map[string]bool) []Device {
	var devices []Device
	for i := range r.Selectors {
		for _, f := range candidates {
			if s := &r.Selectors[i]; !claimed[f.id()] && r.offers(f, s) && s.selects(f) {
				claimed[f.id()] = true
				devices = append(devices, r.device(f, s))
			}
		}
	}
	slices.SortFunc(devices, Device.Compare)
	return devices
}

// MaxReplicas limits the devices in a pool of shared HCAs: placement is fast up to this number, which is half
// of coordination's limit per resource.
const MaxReplicas = 1 << 13

// share returns the replicas of every HCA that the resource selects. An HCA may be in several resources:
// shared contains those of earlier resources.
func (r *ResourceConfig) share(
	candidates []*function, shared map[topology.Address]bool,
) (devices []Device, warnings []string) {
	var hcas []Device
	for _, f := range candidates {
		if r.offers(f, &r.Selectors[0]) && r.Selectors[0].selects(f) {
			hcas = append(hcas, r.hca(f, shared))
		}
	}
	slices.SortFunc(hcas, Device.Compare)
	replicas := min(r.Replicas, MaxReplicas/max(len(hcas), 1))
	if replicas < r.Replicas {
		const fewer = "resource %q: rdmaHcaMax: a resource has %d devices at most: " +
			"each of its %d HCAs is offered %d times"
		warnings = append(warnings, fmt.Sprintf(fewer, r.Name, MaxReplicas, len(hcas), replicas))
	}
	for _, d := range hcas {
		for n := range replicas {
			d.ID = replicaID(d.Address, r.firstReplica+n)
			devices = append(devices, d)
		}
	}
	return devices, warnings
}

// hca returns the common part of an HCA's replicas. Containers share the HCA with the node, so they hide none
// of its properties.
func (r *ResourceConfig) hca(f *function, shared map[topology.Address]bool) Device {
	d := r.device(f, &r.Selectors[0])
	d.HCA, d.Visible = d.ID, nil
	if shared[f.Address] {
		d.HCA += "." + r.Name
	}
	shared[f.Address] = true
	return d
}

func (r *ResourceConfig) device(f *function, s *Selector) Device {
	d := Device{
		ID: f.id(), Address: f.Address, PF: f.PF, NUMA: f.NUMA, Aux: f.aux,
		Fault: r.fault(f, s), Selector: s, Visible: f.visible(),
	}
	if r.ExcludeTopology == Always {
		d.NUMA = topology.NUMANode{}
	}
	return d
}

// acceleratorClass is the PCI class of processing accelerators.
const acceleratorClass = 0x12

// isOf reports whether a device has a type. The classes are those of SupportedDevices in pkg/types/types.go
// of the stock plugin.
func (f *function) isOf(t DeviceType) bool {
	switch t {
	case AuxNetDevice:
		return f.aux != ""
	case Accelerator:
		return f.aux == "" && f.Class>>16 == acceleratorClass
	default:
		return f.aux == "" && (f.IsNIC() || f.ManagesNVSwitches)
	}
}

// offers reports whether a selector of the resource can get a device: the device has the resource's type and
// is not reserved.
func (r *ResourceConfig) offers(f *function, s *Selector) bool {
	return f.isOf(r.DeviceType) && r.reserved(f, s) == "" && (r.DeviceType != SharedHCA || len(f.RDMA) > 0)
}

// fault returns the reason why a device is unhealthy, "" for a healthy one. Unreadable values count as
// healthy.
func (r *ResourceConfig) fault(f *function, s *Selector) string {
	if name := f.unpassableRDMA(); s.IsRDMA && name != "" {
		const renamed = "its RDMA device has a name that containers cannot be told, %q: rename it (rdma dev set)"
		return fmt.Sprintf(renamed, name)
	}
	if why := f.lacksUverbs(); s.IsRDMA && why != "" {
		return why
	}
	switch {
	case r.CheckPF && noCarrier(f):
		return "no carrier on the PF"
	case r.CheckExporter && f.machine.ill(f.id()):
		return "unhealthy for the metrics exporter"
	case r.CheckPort && portDown(f):
		return "the RDMA port is not active"
	default:
		return ""
	}
}

// lacksUverbs returns why containers cannot use the RDMA device, "" if they can or if there is none.
func (f *function) lacksUverbs() string {
	if len(f.rdma()) == 0 {
		return ""
	}
	names := topology.Names(f.machine.sys, f.file("infiniband_verbs"))
	if len(names) == 0 {
		return "no uverbs device: load the kernel module ib_uverbs"
	}
	for _, name := range names {
		if node := "/dev/infiniband/" + name; container.LacksNode(f.machine.dev, node) {
			return "no device node " + node + ": load the kernel module ib_uverbs"
		}
	}
	return ""
}

// noCarrier reads carrier of the netdevs of the PF, or of the function itself if it has no PF; of several
// ports the best counts. The read fails while a netdev is down (Documentation/ABI/testing/sysfs-class-net),
// which also means no carrier.
func noCarrier(f *function) bool {
	dir, ports := NetdevFile(f.machine.sys, f.Address, f.aux), f.netdevs()
	if parent, ok := f.parent(); ok {
		dir, ports = NetdevFile(f.machine.sys, parent, ""), f.machine.ports(parent)
	}
	return len(ports) > 0 && !slices.ContainsFunc(ports, func(netdev string) bool {
		says := func(file string) string { return ReadText(f.machine.sys, path.Join(dir, netdev, file)) }
		return says("carrier") != "0" && says("operstate") != "down"
	})
}

// portDown reads the state of the ports, "4: ACTIVE" (Documentation/ABI/stable/sysfs-class-infiniband), of
// the device's own RDMA devices or, if a container hides these, of its PF's; of several ports the best
// counts.
func portDown(f *function) bool {
	own := f.rdma()
	dir := f.file("infiniband")
	if len(own) == 0 {
		parent, _ := f.parent()
		if d, ok := f.machine.tree.Device(parent); ok {
			own, dir = d.RDMA, FunctionFile(parent, "", "infiniband")
		}
	}
	down := false
	for _, name := range own {
		ports := path.Join(dir, name, "ports")
		for _, number := range topology.Names(f.machine.sys, ports) {
			switch state := ReadText(f.machine.sys, path.Join(ports, number, "state")); {
			case strings.HasSuffix(state, ": ACTIVE"):
				return false
			case state != "":
				down = true
			}
		}
	}
	return down
}

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

// FindReservations returns the reservations for the netdevs with a default route in the main table, and
// for the netdevs below them: ports of a bond, team, bridge or Open vSwitch, the netdev below a VLAN, the
// VF below the synthetic netdev of a guest. The stock plugin knows the first ones only, so that the others
// can still be named. The notes are about netdevs with another default route, which are offered.
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
		for _, id := range owners(f.Sys, netdev) {
			found[id] = Reservation{Reason: carriesDefaultRoute}
		}
	}
	for _, netdev := range routes.Main {
		f.reserveBelow(found, netdev, netdev, map[string]bool{})
	}
	var notes []string
	for _, netdev := range routes.Other {
		for _, id := range owners(f.Sys, netdev) {
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
	for _, name := range topology.Names(f.Sys, netdevLink(netdev)) {
		lower, ok := strings.CutPrefix(name, "lower_")
		if !ok {
			continue
		}
		for _, id := range owners(f.Sys, lower) {
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
