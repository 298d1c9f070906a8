package sysfs

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// SRIOV tells what the kernel knows of one function of SR-IOV, with a look at the machine for each answer.
type SRIOV interface {
	// PF is that of a VF; false for anything else.
	PF(vf topology.Address) (topology.Address, bool)
	// Index is the number of a VF within its PF, that of the link virtfn<N> (pci_iov_sysfs_link in
	// drivers/pci/iov.c); -1 where it has none. Each answer lists the PF: for many VFs see [Indexes].
	Index(vf topology.Address) int
	// Uplink is the netdev of a PF in switchdev mode that is its port, and not a representor; "" in any other
	// mode. That of a VF is its PF's.
	Uplink(a topology.Address) string
	// Representor is the netdev that stands for a VF of a PF in switchdev mode; "" in any other mode.
	Representor(pf topology.Address, index int) string
	// Netdevs are those of a function or, where aux is its name, of one of its auxiliary devices, sorted.
	Netdevs(a topology.Address, aux string) []string
	// VFIO reports whether a function is bound to vfio-pci.
	VFIO(a topology.Address) bool
	// DefaultPKey is partition key 0 of port 1 of a function's first RDMA device; "" where there is none.
	DefaultPKey(a topology.Address) string
}

// At is how to ask the machine below a sysfs root: by sriovnet on a live node, which is /sys, and else by
// [Files].
func At(root string, sys fs.FS) SRIOV {
	if filepath.Clean(root) != "/sys" {
		return Files{sys}
	}
	return newLive(sys)
}

// Files answers from a sysfs root, wherever it is.
type Files struct{ Sys fs.FS }

// PF implements SRIOV.
func (f Files) PF(vf topology.Address) (topology.Address, bool) {
	pf, err := topology.ParseAddress(Link(f.Sys, File(vf, "", "physfn")))
	return pf, err == nil
}

// Index implements SRIOV.
func (f Files) Index(vf topology.Address) int {
	if pf, ok := f.PF(vf); ok {
		if index, ok := Indexes(f.Sys, pf)[vf.String()]; ok {
			return index
		}
	}
	return -1
}

// Indexes are the indexes of all VFs of a PF by their addresses. Where a link is missing its index is too.
func Indexes(sys fs.FS, pf topology.Address) map[string]int {
	indexes := map[string]int{}
	for _, name := range Names(sys, File(pf, "")) {
		number, found := strings.CutPrefix(name, "virtfn")
		if index, err := strconv.Atoi(number); found && err == nil {
			indexes[Link(sys, File(pf, "", name))] = index
		}
	}
	return indexes
}

// The phys_port_name of a netdev that is a port of its NIC, and of one that is a VF's representor.
var (
	physicalPort = regexp.MustCompile(`^p\d+$`)
	vfPort       = regexp.MustCompile(`^pf\d+vf(\d+)$`)
)

// Uplink implements SRIOV.
func (f Files) Uplink(a topology.Address) string {
	if pf, ok := f.PF(a); ok {
		a = pf
	}
	return f.port(a, func(netdev, port string) bool {
		return Text(f.Sys, netdev+"/phys_switch_id") != "" && physicalPort.MatchString(port)
	})
}

// Representor implements SRIOV.
func (f Files) Representor(pf topology.Address, index int) string {
	return f.port(pf, func(_, port string) bool {
		match := vfPort.FindStringSubmatch(port)
		return match != nil && match[1] == strconv.Itoa(index)
	})
}

// port is the first netdev of a PF that is the wanted port, by its folder and its phys_port_name.
func (f Files) port(pf topology.Address, is func(netdev, port string) bool) string {
	for _, name := range Names(f.Sys, File(pf, "", "net")) {
		netdev := File(pf, "", "net", name)
		if is(netdev, Text(f.Sys, netdev+"/phys_port_name")) {
			return name
		}
	}
	return ""
}

// Netdevs implements SRIOV.
func (f Files) Netdevs(a topology.Address, aux string) []string {
	return Names(f.Sys, File(a, aux, "net"))
}

// VFIO implements SRIOV.
func (f Files) VFIO(a topology.Address) bool {
	return Link(f.Sys, File(a, "", "driver")) == "vfio-pci"
}

// DefaultPKey implements SRIOV.
func (f Files) DefaultPKey(a topology.Address) string {
	devices := Names(f.Sys, File(a, "", "infiniband"))
	if len(devices) == 0 {
		return ""
	}
	return Text(f.Sys, File(a, "", "infiniband", devices[0], "ports/1/pkeys/0"))
}
