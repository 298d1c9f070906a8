package rdma

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// machine reads, below a sysfs root, what selectors ask and the tree does not hold. Everything is read below the root, on
// a live node too: these files say the same as netlink, which would tell of the wrong machine anywhere else.
type machine struct {
	sys     fs.FS
	tree    *topology.Tree
	ddp     func(function, pf topology.Address) string
	known   map[string]hidden // what was seen of devices by ID, before containers hid it
	pfNames map[topology.Address]string
	indexes map[topology.Address]map[string]int
	vdpa    map[topology.Address]vdpaDevice // nil until somebody asks
}

func (f Finder) machine(tree *topology.Tree) *machine {
	return &machine{
		sys:     f.Sys,
		tree:    tree,
		ddp:     f.DDP,
		known:   f.known,
		pfNames: map[topology.Address]string{},
		indexes: map[topology.Address]map[string]int{},
	}
}

// function is one PCI function, or a sub-function of it, with the values that selectors compare, "" for one it does not have.
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
func (f *function) file(elements ...string) string {
	return inDevice(f.Address, f.aux, elements...)
}

// inDevice names a file of a PCI function, or of one of its auxiliary devices.
func inDevice(a topology.Address, aux string, elements ...string) string {
	return inFunction(a.String(), aux, path.Join(elements...))
}

func (f *function) vendor() string  { return fmt.Sprintf("%04x", f.Vendor) }
func (f *function) product() string { return fmt.Sprintf("%04x", f.Product) }
func (f *function) driver() string  { return f.Driver }
func (f *function) address() string { return f.Address.String() }

func (f *function) acpiIndex() string { return readText(f.machine.sys, f.file("acpi_index")) }

// parent is the function that pfNames and rootDevices name: the PF of a VF, the function that a sub-function hangs on.
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

func (f *function) pfAddress() string {
	if parent, ok := f.parent(); ok {
		return parent.String()
	}
	return ""
}

// pfName is the netdev of the parent. In switchdev mode a PF has several, its VFs' representors among them; then it is the
// uplink representor.
func (f *function) pfName() string {
	parent, ok := f.parent()
	if !ok {
		return ""
	}
	name, ok := f.machine.pfNames[parent]
	if !ok {
		name = f.machine.pfName(parent)
		f.machine.pfNames[parent] = name
	}
	return name
}

func (m *machine) pfName(pf topology.Address) string {
	d, ok := m.tree.Device(pf)
	if !ok || len(d.Netdevs) == 0 {
		return ""
	}
	if name, err := uplink(m.sys, pf); err == nil {
		return name
	}
	return d.Netdevs[0]
}

// index is the number of a VF within its PF, that of the link virtfn<N> (pci_iov_sysfs_link in drivers/pci/iov.c), or the
// number of a sub-function, sfnum; -1 for anything else. The position in the tree's list of VFs is not enough: where a
// link is missing the rest would shift.
func (f *function) index() int {
	if f.aux != "" {
		return f.sfNumber()
	}
	if !f.IsVF() {
		return -1
	}
	indexes, ok := f.machine.indexes[f.PF]
	if !ok {
		indexes = f.machine.vfIndexes(f.PF)
		f.machine.indexes[f.PF] = indexes
	}
	if index, ok := indexes[f.Address.String()]; ok {
		return index
	}
	return -1
}

func (m *machine) vfIndexes(pf topology.Address) map[string]int {
	indexes := map[string]int{}
	for _, name := range readNames(m.sys, inFunction(pf.String())) {
		number, found := strings.CutPrefix(name, "virtfn")
		if index, err := strconv.Atoi(number); found && err == nil {
			indexes[readLink(m.sys, inFunction(pf.String(), name))] = index
		}
	}
	return indexes
}

// netdevs are those of the device itself, sorted.
func (f *function) netdevs() []string {
	if f.aux != "" {
		return readNames(f.machine.sys, f.file("net"))
	}
	return f.Netdevs
}

// rdma are the names of the device's own RDMA devices, sorted.
func (f *function) rdma() []string {
	if f.aux != "" {
		return readNames(f.machine.sys, f.file("infiniband"))
	}
	return f.RDMA
}

// linkTypes names the hardware types of include/uapi/linux/if_arp.h as ip link does.
var linkTypes = map[string]string{"1": "ether", "32": "infiniband"}

// linkType is that of the device's netdev or, where a container has that, what it was before, or that of its PF's.
func (f *function) linkType() string {
	if own := f.netdevs(); len(own) > 0 {
		return linkTypes[readText(f.machine.sys, f.file("net", own[0], "type"))]
	}
	if before, ok := f.before(); ok && before.LinkType != "" {
		return before.LinkType
	}
	if name := f.pfName(); name != "" {
		return linkTypes[readText(f.machine.sys, inFunction(f.pfAddress(), "net", name, "type"))]
	}
	return ""
}

// pKey is the default partition key of an InfiniBand function.
func (f *function) pKey() string {
	if f.linkType() != "infiniband" {
		return ""
	}
	if key, err := defaultPKey(f.machine.sys, f.Address); err == nil {
		return key
	}
	before, _ := f.before()
	return before.PKey
}

// ddpProfile is the name of the DDP package that the NIC has loaded.
func (f *function) ddpProfile() string {
	if f.machine.ddp == nil {
		return ""
	}
	return f.machine.ddp(f.Address, f.Function())
}

// auxiliaryRDMA is the name of the auxiliary device through which a network driver offers RDMA: mlx5_core.rdma.3,
// bnxt_en.rdma.0, ice.roce.1.
var auxiliaryRDMA = regexp.MustCompile(`^[^.]+\.(rdma|roce|iwarp)\.\d+$`)

// isRDMA reports whether the device has an RDMA device. In exclusive mode that of a VF in a container is hidden from the
// node; the auxiliary device it belongs to is not, and says the same as the devlink parameter enable_rdma. Where a driver
// has none, what was seen before counts.
func (f *function) isRDMA() bool {
	if len(f.rdma()) > 0 || slices.ContainsFunc(readNames(f.machine.sys, f.file()), auxiliaryRDMA.MatchString) {
		return true
	}
	before, _ := f.before()
	return before.RDMA
}
