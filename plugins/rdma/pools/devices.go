// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/topology"
)

// Pool has the devices of one resource name on a machine.
type Pool struct {
	Name     string          // "intel.com/mlnx_vf"
	Devices  []Device        // ascending by address, then by ID
	Resource *ResourceConfig // from the configuration
	First    bool            // of the pools with its prefix and device type
	Decision string          // about the hints, a sentence for people; "" if nobody decided
}

// Device finds a device by its ID.
func (p Pool) Device(id string) (d Device, ok bool) {
	i := slices.IndexFunc(p.Devices, func(d Device) bool { return d.ID == id })
	if i < 0 {
		return Device{}, false
	}
	return p.Devices[i], true
}

// Beside returns a healthy device for each HCA of the pool that ids do not cover; nil unless containers get
// all HCAs.
func (p Pool) Beside(ids []string) (beside []string) {
	if p.Resource.DeviceType != SharedHCA || !p.Resource.Tandem.AllHCAs {
		return nil
	}
	has := map[string]bool{}
	for _, d := range p.Devices {
		has[d.HCA] = has[d.HCA] || slices.Contains(ids, d.ID)
	}
	for _, d := range p.Devices {
		if !has[d.HCA] && d.Fault == "" {
			has[d.HCA] = true
			beside = append(beside, d.ID)
		}
	}
	return beside
}

// Device is a device of a pool, usually a VF. In JSON a device has what tells where it was.
type Device struct {
	// the kubelet's device ID: the full PCI address, or the name of a sub-function; of a replica see shareHCAs
	ID       string            `json:"-"`
	Address  topology.Address  `json:"address"`       // the PCI function; the parent of a sub-function
	PF       topology.Address  `json:"pf,omitzero"`   // of a VF; zero for other devices
	NUMA     topology.NUMANode `json:"numa,omitzero"` // unknown also without hints, see [Pool.Decided]
	Aux      string            `json:"aux,omitempty"` // of a sub-function: the name of its auxiliary device
	Fault    string            `json:"-"`             // reason for being unhealthy; "" for a healthy device
	Degraded string            `json:"-"`             // reason for being chosen last; "" for a good device
	Selector *Selector         `json:"-"`             // with the device's options; nil for a device that is gone
	// properties that containers would hide; nil if a container may hold the device
	Visible *Hidden `json:"-"`
	// of a replica of a shared HCA: the common name of the HCA's replicas in this pool
	HCA string `json:"hca,omitempty"`
}

// Function returns the PF of a VF, or the function itself if it is not a VF.
func (d Device) Function() topology.Address {
	if d.PF != (topology.Address{}) {
		return d.PF
	}
	return d.Address
}

// Unit returns what a container has by the device: the function or the sub-function; by a replica of an HCA,
// shared.
func (d Device) Unit() topology.Unit { return topology.NewUnit(d.Address, d.Aux, d.HCA != "") }

// Name returns the name for people and container runtimes: the HCA of a replica, else the ID.
func (d Device) Name() string { return cmp.Or(d.HCA, d.ID) }

// Missing reports whether a device was found before and is no longer.
func (d Device) Missing() bool { return d.Selector == nil }

// Same reports whether two devices with one ID are the same device in the same state, for all consumers: a
// sub-function can reuse the name of another PF's sub-function.
func (d Device) Same(e Device) bool {
	d.Selector, d.Visible, e.Selector, e.Visible = nil, nil, nil, nil
	return d == e
}

// Gone reports whether the machine no longer has a device.
func (d Device) Gone(sys fs.FS) bool {
	_, err := fs.Stat(sys, d.File())
	return topology.Gone(err)
}

// IsGone reports whether the machine no longer has a device, by the name of its unit; false for a name that
// has no function.
func IsGone(sys fs.FS, unit string) bool {
	address, aux, err := topology.ParseUnit(unit)
	return err == nil && Device{Address: address, Aux: aux}.Gone(sys)
}

// File names a file of the device below the sysfs root.
func (d Device) File(elements ...string) string { return FunctionFile(d.Address, d.Aux, elements...) }

// Compare compares devices in the order of a pool.
func (d Device) Compare(e Device) int {
	return cmp.Or(d.Address.Compare(e.Address), cmp.Compare(d.ID, e.ID))
}

// FromID returns a device with the fields that are part of its ID: the address and, for a replica, the HCA.
// FromID returns false for an ID without an address.
func FromID(id string) (Device, bool) {
	address, replica := topology.CutReplica(id)
	a, err := topology.ParseAddress(address)
	d := Device{ID: id, Address: a}
	if replica {
		d.HCA = address
	}
	return d, err == nil
}

// claimDevices claims the unclaimed devices that the resource selects, selector by selector.
func (r *ResourceConfig) claimDevices(candidates []*function, claimed map[string]bool) []Device {
	var devices []Device
	for i := range r.Selectors {
		for _, f := range candidates {
			if s := &r.Selectors[i]; !claimed[f.id()] && r.canOffer(f, s) && s.isMetBy(f) {
				claimed[f.id()] = true
				devices = append(devices, r.newDevice(f, s))
			}
		}
	}
	slices.SortFunc(devices, Device.Compare)
	return devices
}

// MaxReplicas limits the devices in a pool of shared HCAs: placement is fast up to this number, which is half
// of coordination's limit per resource.
const MaxReplicas = 1 << 13

// shareHCAs returns the replicas of every HCA that the resource selects, with IDs such as "0000:0c:00.0::3".
// Numbers continue from resource to resource, by their rdmaHcaMax, so that IDs are unique. An HCA may be in
// several resources: shared contains those of earlier resources.
func (r *ResourceConfig) shareHCAs(
	candidates []*function, shared map[topology.Address]bool,
) (devices []Device, warnings []string) {
	var hcas []Device
	for _, f := range candidates {
		if r.canOffer(f, &r.Selectors[0]) && r.Selectors[0].isMetBy(f) {
			hcas = append(hcas, r.newHCA(f, shared))
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
			d.ID = topology.ReplicaID(d.Address.String(), r.firstReplica+n)
			devices = append(devices, d)
		}
	}
	return devices, warnings
}

// newHCA returns the common part of an HCA's replicas. Containers share the HCA with the node, so they hide
// none of its properties.
func (r *ResourceConfig) newHCA(f *function, shared map[topology.Address]bool) Device {
	d := r.newDevice(f, &r.Selectors[0])
	d.HCA, d.Visible = d.ID, nil
	if shared[f.Address] {
		d.HCA += "." + r.Name
	}
	shared[f.Address] = true
	return d
}

func (r *ResourceConfig) newDevice(f *function, s *Selector) Device {
	d := Device{
		ID: f.id(), Address: f.Address, PF: f.PF, NUMA: f.NUMA, Aux: f.aux,
		Fault: r.findFault(f, s), Selector: s, Visible: f.visibleProperties(),
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

// canOffer reports whether a selector of the resource can get a device: the device has the resource's type
// and is not reserved.
func (r *ResourceConfig) canOffer(f *function, s *Selector) bool {
	return f.isOf(r.DeviceType) && r.whyReserved(f, s) == "" && (r.DeviceType != SharedHCA || len(f.RDMA) > 0)
}

// findFault returns the reason why a device is unhealthy, "" for a healthy one. Unreadable values count as
// healthy.
func (r *ResourceConfig) findFault(f *function, s *Selector) string {
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
	case r.CheckExporter && f.machine.isIll(f.id()):
		return "unhealthy for the metrics exporter"
	case r.CheckPort && portDown(f):
		return "the RDMA port is not active"
	default:
		return ""
	}
}

// lacksUverbs returns why containers cannot use the RDMA device, "" if they can or if there is none.
func (f *function) lacksUverbs() string {
	if len(f.ownRDMA()) == 0 {
		return ""
	}
	names := topology.Names(f.machine.Sys, f.file("infiniband_verbs"))
	if len(names) == 0 {
		return "no uverbs device: load the kernel module ib_uverbs"
	}
	for _, name := range names {
		if node := "/dev/infiniband/" + name; container.LacksNode(f.machine.Dev, node) {
			return "no device node " + node + ": load the kernel module ib_uverbs"
		}
	}
	return ""
}

// noCarrier reads carrier of the netdevs of the PF, or of the function itself if it has no PF; of several
// ports the best counts. The read fails while a netdev is down (Documentation/ABI/testing/sysfs-class-net),
// which also means no carrier.
func noCarrier(f *function) bool {
	dir, ports := NetdevFile(f.machine.Sys, f.Address, f.aux), f.ownNetdevs()
	if parent, ok := f.parentFunction(); ok {
		dir, ports = NetdevFile(f.machine.Sys, parent, ""), f.machine.portsOf(parent)
	}
	return len(ports) > 0 && !slices.ContainsFunc(ports, func(netdev string) bool {
		says := func(file string) string { return ReadText(f.machine.Sys, path.Join(dir, netdev, file)) }
		return says("carrier") != "0" && says("operstate") != "down"
	})
}

// portDown reads the state of the ports, "4: ACTIVE" (Documentation/ABI/stable/sysfs-class-infiniband), of
// the device's own RDMA devices or, if a container hides these, of its PF's; of several ports the best
// counts.
func portDown(f *function) bool {
	own := f.ownRDMA()
	dir := f.file("infiniband")
	if len(own) == 0 {
		parent, _ := f.parentFunction()
		if d, ok := f.machine.tree.Device(parent); ok {
			own, dir = d.RDMA, FunctionFile(parent, "", "infiniband")
		}
	}
	down := false
	for _, name := range own {
		ports := path.Join(dir, name, "ports")
		for _, number := range topology.Names(f.machine.Sys, ports) {
			switch state := ReadText(f.machine.Sys, path.Join(ports, number, "state")); {
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

// reservation is why a device is not offered; the zero reservation is none.
type reservation struct {
	Reason string // a sentence about the device, "it is a PF that has VFs"
	// a selector that names the address of the device gets it all the same
	UnlessNamed bool
}

// Reservations are those for the node's own network, by the ID of a function or sub-function.
type Reservations map[string]reservation

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
		for _, id := range findOwners(f.Sys, netdevLink(netdev)) {
			found[id] = reservation{Reason: carriesDefaultRoute}
		}
	}
	for _, netdev := range routes.Main {
		f.reserveBelow(found, netdev, netdev, map[string]bool{})
	}
	var notes []string
	for _, netdev := range routes.Other {
		for _, id := range findOwners(f.Sys, netdevLink(netdev)) {
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
		for _, id := range findOwners(f.Sys, netdevLink(lower)) {
			if _, reserved := found[id]; !reserved {
				const why = "its netdev %q is below %q, which has the node's default route"
				found[id] = reservation{fmt.Sprintf(why, lower, uplink), true}
			}
		}
		f.reserveBelow(found, lower, uplink, seen)
	}
}

// findReservation returns why the device is not offered as a device of a type.
func (f *function) findReservation(t DeviceType) reservation {
	switch {
	case f.aux != "":
		return f.needed
	case t == Accelerator:
		return reservation{}
	case f.ManagesNVSwitches:
		return reservation{"it manages the node's NVSwitches (VPD: SMDL=SW_MNG)", true}
	case t == SharedHCA: // the node and its VFs may use the HCA too
		return reservation{}
	case f.withVFs:
		return reservation{Reason: "it is a PF that has VFs"}
	default:
		return f.needed
	}
}

// whyReserved returns why a selector of the resource does not get a device, "" for an unreserved device.
func (r *ResourceConfig) whyReserved(f *function, s *Selector) string {
	why := f.findReservation(r.DeviceType)
	if why.UnlessNamed && slices.Contains(s.PCIAddresses, f.Address.String()) {
		return ""
	}
	return why.Reason
}
