package rdma

import (
	"fmt"
	"io/fs"
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
	pfNames map[topology.Address]string
	indexes map[topology.Address]map[string]int
}

func newMachine(sys fs.FS, tree *topology.Tree) *machine {
	return &machine{
		sys:     sys,
		tree:    tree,
		pfNames: map[topology.Address]string{},
		indexes: map[topology.Address]map[string]int{},
	}
}

// function is one PCI function with the values that selectors compare, "" for one it does not have.
type function struct {
	*topology.Device
	machine *machine
	inUse   bool // by the node itself, or through its VFs
}

// file names a file of the function.
func (f *function) file(elements ...string) string {
	return inFunction(f.Address.String(), elements...)
}

func (f *function) vendor() string    { return fmt.Sprintf("%04x", f.Vendor) }
func (f *function) product() string   { return fmt.Sprintf("%04x", f.Product) }
func (f *function) driver() string    { return f.Driver }
func (f *function) address() string   { return f.Address.String() }
func (f *function) acpiIndex() string { return readText(f.machine.sys, f.file("acpi_index")) }

func (f *function) pfAddress() string {
	if !f.IsVF() {
		return ""
	}
	return f.PF.String()
}

// pfName is the netdev of a VF's PF. In switchdev mode a PF has several, its VFs' representors among them; then it is the
// uplink representor.
func (f *function) pfName() string {
	if !f.IsVF() {
		return ""
	}
	name, ok := f.machine.pfNames[f.PF]
	if !ok {
		name = f.machine.pfName(f.PF)
		f.machine.pfNames[f.PF] = name
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

// index is the number of a VF within its PF, that of the link virtfn<N> (pci_iov_sysfs_link in drivers/pci/iov.c); -1
// for anything else. The position in the tree's list of VFs is not enough: where a link is missing the rest would shift.
func (f *function) index() int {
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

// linkTypes names the hardware types of include/uapi/linux/if_arp.h as ip link does.
var linkTypes = map[string]string{"1": "ether", "32": "infiniband"}

// linkType is that of the function's netdev or, where it has none because a container has it, of its PF's.
func (f *function) linkType() string {
	file := ""
	if len(f.Netdevs) > 0 {
		file = f.file("net", f.Netdevs[0], "type")
	} else if name := f.pfName(); name != "" {
		file = inFunction(f.PF.String(), "net", name, "type")
	}
	return linkTypes[readText(f.machine.sys, file)]
}

// pKey is the default partition key of an InfiniBand function.
func (f *function) pKey() string {
	if f.linkType() != "infiniband" {
		return ""
	}
	key, err := defaultPKey(f.machine.sys, f.Address)
	if err != nil {
		return ""
	}
	return key
}

// auxiliaryRDMA is the name of the auxiliary device through which a network driver offers RDMA: mlx5_core.rdma.3,
// bnxt_en.rdma.0, ice.roce.1.
var auxiliaryRDMA = regexp.MustCompile(`^[^.]+\.(rdma|roce|iwarp)\.\d+$`)

// isRDMA reports whether the function has an RDMA device. In exclusive mode that of a VF in a container is hidden from the
// node; the auxiliary device it belongs to is not, and says the same as the devlink parameter enable_rdma.
func (f *function) isRDMA() bool {
	return len(f.RDMA) > 0 || slices.ContainsFunc(readNames(f.machine.sys, f.file()), auxiliaryRDMA.MatchString)
}
