package pools

import (
	"cmp"
	"regexp"
	"slices"

	"github.com/tandem-k8s/tandem/plugins/rdma/sysfs"
)

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

// rdma are the names of the device's own RDMA devices, sorted.
func (f *function) rdma() []string {
	if f.aux != "" {
		return sysfs.Names(f.machine.sys, f.file("infiniband"))
	}
	return f.RDMA
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

// pfNetdev names a file of a netdev of the parent.
func (f *function) pfNetdev(name, file string) string {
	parent, _ := f.parent()
	return sysfs.File(parent, "", "net", name, file)
}

// pKey is the default partition key of an InfiniBand function.
func (f *function) pKey() string {
	if f.linkType() != "infiniband" {
		return ""
	}
	before, _ := f.before()
	return cmp.Or(f.machine.sriov.DefaultPKey(f.Address), before.PKey)
}

// ddpProfile is the name of the DDP package that the NIC has loaded.
func (f *function) ddpProfile() string {
	if f.machine.ddp == nil {
		return ""
	}
	return f.machine.ddp(f.Address, f.Function())
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
