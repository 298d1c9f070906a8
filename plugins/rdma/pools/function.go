// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"

	"github.com/tandem-k8s/tandem/topology"
)

// machine has the candidate devices for the resources, reads values for selectors that the tree lacks, and
// caches shared ones.
type machine struct {
	Finder
	tree       *topology.Tree
	names      []string // of the resources, in full
	notes      []string // about functions of the node's own network
	candidates []*function
	told       map[string]bool // the metrics exporter's health of devices by ID
	pfNames    map[topology.Address]string
	indexes    map[topology.Address]map[string]int
	vdpa       map[string]VDPADevice // by address; nil until somebody asks
}

// pfName returns the netdev of a PF; in switchdev mode, with several netdevs including the VFs' representors,
// the uplink representor.
func (m *machine) pfName(pf topology.Address) string {
	name, ok := m.pfNames[pf]
	if ok {
		return name
	}
	if ports := m.portsOf(pf); len(ports) > 0 {
		name = ports[0]
	}
	m.pfNames[pf] = name
	return name
}

// portsOf returns the netdevs of a PF's ports; in switchdev mode, with a netdev for each VF, the uplink
// representor alone.
func (m *machine) portsOf(pf topology.Address) []string {
	if uplink := m.SRIOV.Uplink(pf); uplink != "" {
		return []string{uplink}
	}
	d, _ := m.tree.Device(pf)
	if d == nil {
		return nil
	}
	return d.Netdevs
}

// vfIndex returns the index of a VF within its PF, -1 for none. The position in the tree's list of VFs is not
// sufficient, because a missing link would shift the rest.
func (m *machine) vfIndex(pf, vf topology.Address) int {
	indexes, ok := m.indexes[pf]
	if !ok {
		indexes = vfIndexes(m.Sys, pf)
		m.indexes[pf] = indexes
	}
	if index, ok := indexes[vf.String()]; ok {
		return index
	}
	return -1
}

// hasVFs reads sriov_numvfs, like the stock plugin; a PF with links to VFs has VFs even if that file is
// absent.
func (m *machine) hasVFs(d *topology.Device) bool {
	numvfs := ReadText(m.Sys, FunctionFile(d.Address, "", "sriov_numvfs"))
	return len(d.VFs) > 0 || (numvfs != "" && numvfs != "0")
}

// isIll reports whether the metrics exporter monitors a device and reports it as unhealthy.
func (m *machine) isIll(id string) bool {
	healthy, known := m.told[id]
	return known && !healthy
}

// Hidden are the properties that a container's namespaces hide: always netdevs, in exclusive mode RDMA
// devices too. Without them selectors would no longer select a device in a container.
type Hidden struct {
	Driver   string `json:"driver"` // with another driver it is another device
	LinkType string `json:"linkType,omitempty"`
	PKey     string `json:"pKey,omitempty"`
	RDMA     bool   `json:"rdma,omitempty"`
}

// function is a PCI function, or a sub-function of one, with the values for selectors, "" for absent values.
type function struct {
	*topology.Device
	machine *machine
	aux     string // of a sub-function: the name of its auxiliary device, "mlx5_core.sf.4"
	needed  reservation
	withVFs bool
}

// id returns the kubelet's device ID, which CNI plugins use as well (Multus' deviceID).
func (f *function) id() string {
	if f.aux != "" {
		return f.aux
	}
	return f.Address.String()
}

// file names a file of the device.
func (f *function) file(elements ...string) string {
	return FunctionFile(f.Address, f.aux, elements...)
}

// parentFunction returns the function that pfNames and rootDevices name: the PF of a VF, the parent of a
// sub-function.
func (f *function) parentFunction() (topology.Address, bool) {
	switch {
	case f.aux != "":
		return f.Address, true
	case f.IsVF():
		return f.PF, true
	default:
		return topology.Address{}, false
	}
}

// pfName returns the netdev of the parent.
func (f *function) pfName() string {
	if parent, ok := f.parentFunction(); ok {
		return f.machine.pfName(parent)
	}
	return ""
}

// number returns the index of a VF within its PF, or the sfnum of a sub-function, else -1.
func (f *function) number() int {
	switch {
	case f.aux != "":
		return f.sfNumber()
	case f.IsVF():
		return f.machine.vfIndex(f.PF, f.Address)
	default:
		return -1
	}
}

// sfNumber returns the user-assigned number of the sub-function (sfnum in
// Documentation/networking/devlink/mlx5.rst, drivers/net/ethernet/mellanox/mlx5/core/sf/dev/dev.c), -1 for an
// auxiliary device without one.
func (f *function) sfNumber() int {
	number, err := strconv.Atoi(ReadText(f.machine.Sys, f.file("sfnum")))
	if err != nil {
		return -1
	}
	return number
}

// auxiliary is the name of an auxiliary device: driver, type and number
// (Documentation/driver-api/auxiliary_bus.rst).
var auxiliary = regexp.MustCompile(`^[^.]+\.([^.]+)\.\d+$`)

// findSubfunctions returns the auxiliary network devices of a network function. Like the stock plugin
// (NewGenNetDevice in pkg/devices/gen_net.go) it ignores devices without a number, and functions without a
// netdev.
func (f *function) findSubfunctions() []*function {
	var found []*function
	for _, name := range topology.Names(f.machine.Sys, f.file()) {
		if !auxiliary.MatchString(name) {
			continue
		}
		sf := &function{Device: f.Device, machine: f.machine, aux: name, needed: f.machine.Reserved[name]}
		if sf.sfNumber() >= 0 && sf.pfName() != "" {
			found = append(found, sf)
		}
	}
	return found
}

// ownNetdevs returns the device's own netdevs, sorted.
func (f *function) ownNetdevs() []string {
	if f.aux != "" {
		return f.machine.SRIOV.Netdevs(f.Address, f.aux)
	}
	return f.Netdevs
}

// firstNetdev returns the first netdev, or "".
func (f *function) firstNetdev() string {
	own := f.ownNetdevs()
	if len(own) == 0 {
		return ""
	}
	return own[0]
}

// earlierProperties returns the properties of a device from before a container hid them, the zero Hidden for
// none: its netdev is missing although its driver is the same.
func (f *function) earlierProperties() Hidden {
	before := f.machine.Known[f.id()]
	if before.Driver != f.Driver || len(f.ownNetdevs()) > 0 {
		return Hidden{}
	}
	return before
}

// visibleProperties returns the properties that containers would hide, nil for a device without a netdev on
// the node.
func (f *function) visibleProperties() *Hidden {
	if len(f.ownNetdevs()) == 0 {
		return nil
	}
	return &Hidden{Driver: f.Driver, LinkType: f.linkType(), PKey: f.pKey(), RDMA: f.isRDMA()}
}

// linkTypes names the hardware types of include/uapi/linux/if_arp.h as ip link does.
var linkTypes = map[string]string{"1": "ether", "32": "infiniband"}

// linkType returns the link type of the device's netdev or, if a container hides it, the earlier link type or
// that of the PF's netdev.
func (f *function) linkType() string {
	if own := f.ownNetdevs(); len(own) > 0 {
		return linkTypes[ReadText(f.machine.Sys, NetdevFile(f.machine.Sys, f.Address, f.aux, own[0], "type"))]
	}
	parent, _ := f.parentFunction()
	name, before := f.pfName(), f.earlierProperties().LinkType
	if name == "" || before != "" {
		return before
	}
	return linkTypes[ReadText(f.machine.Sys, NetdevFile(f.machine.Sys, parent, "", name, "type"))]
}

// pKey returns the default partition key of an InfiniBand function.
func (f *function) pKey() string {
	if f.linkType() != "infiniband" {
		return ""
	}
	return cmp.Or(f.machine.SRIOV.DefaultPKey(f.Address), f.earlierProperties().PKey)
}

// ownRDMA returns the names of the device's own RDMA devices, sorted.
func (f *function) ownRDMA() []string {
	if f.aux != "" {
		return topology.RDMADevices(f.machine.Sys, f.file())
	}
	return f.RDMA
}

// unpassableRDMA returns the name of an RDMA device that cannot be passed on, "" for none: a container would
// get the device without its device nodes.
func (f *function) unpassableRDMA() string {
	names := topology.Names(f.machine.Sys, f.file("infiniband"))
	i := slices.IndexFunc(names, func(name string) bool { return !topology.IsPassable(name) })
	if i < 0 {
		return ""
	}
	return names[i]
}

// auxiliaryRDMA matches the auxiliary device through which a network driver offers RDMA: mlx5_core.rdma.3,
// bnxt_en.rdma.0, ice.roce.1.
var auxiliaryRDMA = regexp.MustCompile(`^[^.]+\.(rdma|roce|iwarp)\.\d+$`)

// isRDMA reports whether the device has an RDMA device. In exclusive mode a VF's RDMA device is hidden while
// a container holds it; its auxiliary device is visible, and equivalent to the devlink parameter enable_rdma.
// For drivers without auxiliary devices the earlier properties count.
func (f *function) isRDMA() bool {
	return len(f.ownRDMA()) > 0 || f.earlierProperties().RDMA || f.unpassableRDMA() != "" ||
		slices.ContainsFunc(topology.Names(f.machine.Sys, f.file()), auxiliaryRDMA.MatchString)
}
