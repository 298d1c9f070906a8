// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"

	"github.com/tandem-k8s/tandem/plugins/rdma/sysfs"
	"github.com/tandem-k8s/tandem/topology"
)

// function is one PCI function, or a sub-function of it, with the values that selectors compare, "" for one
// it does not have.
type function struct {
	*topology.Device
	machine *machine
	aux     string // of a sub-function: the name of its auxiliary device, "mlx5_core.sf.4"
	inUse   bool   // by the node itself, or through its VFs
}

// id is the kubelet's device ID: what CNI plugins take for the device (Multus' deviceID).
func (f *function) id() string {
	if f.aux != "" {
		return f.aux
	}
	return f.Address.String()
}

// file names a file of the device.
func (f *function) file(elements ...string) string { return sysfs.File(f.Address, f.aux, elements...) }

// parent is the function that pfNames and rootDevices name: the PF of a VF, the function that a sub-function
// hangs on.
func (f *function) parent() (topology.Address, bool) {
	switch {
	case f.aux != "":
		return f.Address, true
	case f.IsVF():
		return f.PF, true
	default:
		return topology.Address{}, false
	}
}

// pfName is the netdev of the parent.
func (f *function) pfName() string {
	if parent, ok := f.parent(); ok {
		return f.machine.pfName(parent)
	}
	return ""
}

// pfNetdev names a file of a netdev of the parent.
func (f *function) pfNetdev(name, file string) string {
	parent, _ := f.parent()
	return sysfs.File(parent, "", "net", name, file)
}

// number is the number of a VF within its PF or of a sub-function, sfnum; -1 for anything else.
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

// sfNumber is the number that the sub-function was created with (sfnum in
// Documentation/networking/devlink/mlx5.rst, drivers/net/ethernet/mellanox/mlx5/core/sf/dev/dev.c); -1 for an
// auxiliary device that has none.
func (f *function) sfNumber() int {
	number, err := strconv.Atoi(sysfs.Text(f.machine.sys, f.file("sfnum")))
	if err != nil {
		return -1
	}
	return number
}

// auxiliary is the name of an auxiliary device: driver, type and number
// (Documentation/driver-api/auxiliary_bus.rst).
var auxiliary = regexp.MustCompile(`^[^.]+\.([^.]+)\.\d+$`)

// subfunctions are the auxiliary network devices of a network function. As in the stock plugin
// (NewGenNetDevice in pkg/devices/gen_net.go) one without a number, or of a function without a netdev, is
// none.
func (f *function) subfunctions() []*function {
	var found []*function
	for _, name := range sysfs.Names(f.machine.sys, f.file()) {
		if !auxiliary.MatchString(name) {
			continue
		}
		sf := &function{Device: f.Device, machine: f.machine, aux: name}
		if sf.sfNumber() >= 0 && sf.pfName() != "" {
			found = append(found, sf)
		}
	}
	return found
}

// netdevs are those of the device itself, sorted.
func (f *function) netdevs() []string {
	if f.aux != "" {
		return f.machine.sriov.Netdevs(f.Address, f.aux)
	}
	return f.Netdevs
}

// netdev is the first of them.
func (f *function) netdev() string {
	own := f.netdevs()
	if len(own) == 0 {
		return ""
	}
	return own[0]
}

// before is what was seen of a device while it was on the node, if it is in a container now: its netdev is
// not there although its driver is the same.
func (f *function) before() (Hidden, bool) {
	h, ok := f.machine.known[f.id()]
	ok = ok && h.Driver == f.Driver && len(f.netdevs()) == 0
	if !ok {
		return Hidden{}, false
	}
	return h, true
}

// visible is what containers would hide of a device, nil where it has no netdev on the node.
func (f *function) visible() *Hidden {
	if len(f.netdevs()) == 0 {
		return nil
	}
	return &Hidden{Driver: f.Driver, LinkType: f.linkType(), PKey: f.pKey(), RDMA: f.isRDMA()}
}

// linkTypes names the hardware types of include/uapi/linux/if_arp.h as ip link does.
var linkTypes = map[string]string{"1": "ether", "32": "infiniband"}

// linkType is that of the device's netdev or, where a container has that, what it was before, or that of its
// PF's.
func (f *function) linkType() string {
	if own := f.netdevs(); len(own) > 0 {
		return linkTypes[sysfs.Text(f.machine.sys, f.file("net", own[0], "type"))]
	}
	if before, ok := f.before(); ok && before.LinkType != "" {
		return before.LinkType
	}
	if name := f.pfName(); name != "" {
		return linkTypes[sysfs.Text(f.machine.sys, f.pfNetdev(name, "type"))]
	}
	return ""
}

// pKey is the default partition key of an InfiniBand function.
func (f *function) pKey() string {
	if f.linkType() != "infiniband" {
		return ""
	}
	before, _ := f.before()
	return cmp.Or(f.machine.sriov.DefaultPKey(f.Address), before.PKey)
}

// rdma are the names of the device's own RDMA devices, sorted.
func (f *function) rdma() []string {
	if f.aux != "" {
		return sysfs.Names(f.machine.sys, f.file("infiniband"))
	}
	return f.RDMA
}

// auxiliaryRDMA is the name of the auxiliary device through which a network driver offers RDMA:
// mlx5_core.rdma.3, bnxt_en.rdma.0, ice.roce.1.
var auxiliaryRDMA = regexp.MustCompile(`^[^.]+\.(rdma|roce|iwarp)\.\d+$`)

// isRDMA reports whether the device has an RDMA device. In exclusive mode that of a VF in a container is
// hidden from the node; the auxiliary device it belongs to is not, and says the same as the devlink parameter
// enable_rdma. Where a driver has none, what was seen before counts.
func (f *function) isRDMA() bool {
	before, _ := f.before()
	return len(f.rdma()) > 0 || before.RDMA ||
		slices.ContainsFunc(sysfs.Names(f.machine.sys, f.file()), auxiliaryRDMA.MatchString)
}
