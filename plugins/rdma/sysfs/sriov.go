// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// SRIOV returns the kernel's SR-IOV facts of a function. Each call reads the machine.
type SRIOV interface {
	// Uplink returns the netdev of a PF in switchdev mode that is its port, not a representor, and for a VF that
	// of its PF; "" in any other mode.
	Uplink(a topology.Address) string
	// Representors returns the netdevs that represent the VFs of a PF in switchdev mode, by the address of the
	// VF; none in any other mode.
	Representors(pf topology.Address) map[string]string
	// Netdevs returns the netdevs of a function, or of one of its auxiliary devices if aux names one, sorted;
	// without those whose names cannot be passed on (topology.IsPassable).
	Netdevs(a topology.Address, aux string) []string
	// VFIO reports whether a function is bound to vfio-pci.
	VFIO(a topology.Address) bool
	// DefaultPKey returns partition key 0 of port 1 of a function's first RDMA device; "" if there is none.
	DefaultPKey(a topology.Address) string
}

// At returns the reader for the machine below a sysfs root: sriovnet on a live node, which is /sys, otherwise
// [Files].
func At(root string, sys fs.FS) SRIOV {
	if filepath.Clean(root) != "/sys" {
		return Files{sys}
	}
	return newLive(sys)
}

// Files reads the facts from any sysfs root.
type Files struct{ Sys fs.FS }

// pf returns the PF of a VF, or false for other functions.
func (f Files) pf(vf topology.Address) (topology.Address, bool) {
	pf, err := topology.ParseAddress(Link(f.Sys, File(vf, "", "physfn")))
	return pf, err == nil
}

// Indexes returns the indexes of a PF's VFs by address. VFs without a link are missing.
func Indexes(sys fs.FS, pf topology.Address) map[string]int {
	indexes := map[string]int{}
	for _, name := range topology.Names(sys, File(pf, "")) {
		number, found := strings.CutPrefix(name, "virtfn")
		if index, err := strconv.Atoi(number); found && err == nil {
			indexes[Link(sys, File(pf, "", name))] = index
		}
	}
	return indexes
}

// phys_port_name of an uplink netdev, and of a VF's representor.
var (
	physicalPort = regexp.MustCompile(`^p\d+$`)
	vfPort       = regexp.MustCompile(`^pf\d+vf(\d+)$`)
)

// Uplink implements SRIOV.
func (f Files) Uplink(a topology.Address) string {
	if pf, ok := f.pf(a); ok {
		a = pf
	}
	return f.port(a, func(netdev, port string) bool {
		return Text(f.Sys, netdev+"/phys_switch_id") != "" && physicalPort.MatchString(port)
	})
}

// port returns the first netdev of a PF for which is returns true, given the netdev's folder and
// phys_port_name.
func (f Files) port(pf topology.Address, is func(netdev, port string) bool) string {
	for _, name := range f.Netdevs(pf, "") {
		netdev := NetFile(f.Sys, pf, "", name)
		if is(netdev, Text(f.Sys, netdev+"/phys_port_name")) {
			return name
		}
	}
	return ""
}

// Representors implements SRIOV. Of several netdevs for one VF the first counts.
func (f Files) Representors(pf topology.Address) map[string]string {
	ports := map[int]string{}
	for _, name := range slices.Backward(f.Netdevs(pf, "")) {
		match := vfPort.FindStringSubmatch(Text(f.Sys, NetFile(f.Sys, pf, "", name, "phys_port_name")))
		if match == nil {
			continue
		}
		if index, err := strconv.Atoi(match[1]); err == nil {
			ports[index] = name
		}
	}
	if len(ports) == 0 {
		return nil
	}
	found := map[string]string{}
	for vf, index := range Indexes(f.Sys, pf) {
		if ports[index] != "" {
			found[vf] = ports[index]
		}
	}
	return found
}

// Netdevs implements SRIOV.
func (f Files) Netdevs(a topology.Address, aux string) []string {
	return topology.Netdevs(f.Sys, File(a, aux))
}

// VFIO implements SRIOV.
func (f Files) VFIO(a topology.Address) bool {
	return Link(f.Sys, File(a, "", "driver")) == "vfio-pci"
}

// DefaultPKey implements SRIOV.
func (f Files) DefaultPKey(a topology.Address) string {
	devices := topology.RDMADevices(f.Sys, File(a, ""))
	if len(devices) == 0 {
		return ""
	}
	return Text(f.Sys, File(a, "", "infiniband", devices[0], "ports/1/pkeys/0"))
}
