// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// FunctionFile returns the path of a file of a PCI function, or of one of its auxiliary devices if aux names
// one.
func FunctionFile(a topology.Address, aux string, elements ...string) string {
	return path.Join(topology.PCIDevices, a.String(), aux, path.Join(elements...))
}

// NetdevFile returns the path of a file of the netdevs of a PCI function, or of one of its auxiliary devices.
func NetdevFile(sys fs.FS, a topology.Address, aux string, elements ...string) string {
	return path.Join(topology.NetFolder(sys, FunctionFile(a, aux)), path.Join(elements...))
}

// ReadText returns the content of a file without surrounding white space; "" if the file cannot be read.
func ReadText(sys fs.FS, file string) string {
	content, err := fs.ReadFile(sys, file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

// ReadLink returns the last element of a link's target; "" if the link does not exist.
func ReadLink(sys fs.FS, file string) string {
	target, err := fs.ReadLink(sys, file)
	if err != nil {
		return ""
	}
	return path.Base(target)
}

// subfunction is the name of the auxiliary device of a sub-function.
var subfunction = regexp.MustCompile(`^[^.]+\.sf\.\d+$`)

// findOwners returns the IDs of the devices of a netdev or vDPA device, by its link: the last PCI function on
// the path, which may be an indirect parent (virtio, which the stock plugin misses and offers), and before it
// the sub-function below the function if any; none for a virtual device.
func findOwners(sys fs.FS, link string) (ids []string) {
	target, err := fs.ReadLink(sys, link)
	if err != nil {
		return nil
	}
	for _, element := range slices.Backward(strings.Split(target, "/")) {
		if a, err := topology.ParseAddress(element); err == nil {
			return append(ids, a.String())
		}
		if subfunction.MatchString(element) {
			ids = append(ids, element)
		}
	}
	return nil
}

// netdevLink returns the path of the link to a netdev by its name.
func netdevLink(netdev string) string { return "class/net/" + netdev }

// RDMADevices returns the RDMA devices of a function, or of one of its auxiliary devices if aux names one,
// sorted, without those whose names cannot be passed on. In exclusive mode the RDMA device of a VF in a
// container is hidden from the node. Its character devices are not hidden and name their device: of the
// classes in drivers/infiniband/core only infiniband has namespaces.
func RDMADevices(sys fs.FS, a topology.Address, aux string) []string {
	if names := topology.RDMADevices(sys, FunctionFile(a, aux)); len(names) > 0 {
		return names
	}
	var names []string
	for _, node := range topology.Names(sys, FunctionFile(a, aux, "infiniband_verbs")) {
		if name := ReadText(sys, FunctionFile(a, aux, "infiniband_verbs", node, "ibdev")); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return topology.PassableNames(names)
}

// vdpaDrivers maps the values of vdpaType to drivers of the vDPA bus (SupportedVdpaTypes in
// pkg/types/types.go of the stock plugin).
var vdpaDrivers = map[string]string{"virtio": "virtio_vdpa", "vhost": "vhost_vdpa"}

// VDPADevice is a vDPA device of a PCI function (Documentation/ABI/testing/sysfs-bus-vdpa).
type VDPADevice struct {
	Name string // "vdpa0"
	Kind string // a value of vdpaType, "" for any other driver
	Node string // of vhost: "/dev/vhost-vdpa-0"
}

// VDPADevices returns all vDPA devices by the address of their function. The stock plugin reads them from
// netlink; of several devices of one function it uses the first.
func VDPADevices(sys fs.FS) map[string]VDPADevice {
	const bus = "bus/vdpa/devices"
	found := map[string]VDPADevice{}
	for _, name := range topology.Names(sys, bus) {
		owners := findOwners(sys, path.Join(bus, name))
		if len(owners) == 0 || found[owners[len(owners)-1]].Name != "" {
			continue
		}
		d := VDPADevice{Name: name}
		driver := ReadLink(sys, path.Join(bus, name, "driver"))
		for kind, its := range vdpaDrivers {
			if its == driver {
				d.Kind = kind
			}
		}
		nodes := topology.Names(sys, path.Join(bus, name))
		if i := slices.IndexFunc(nodes, func(n string) bool { return strings.HasPrefix(n, "vhost-vdpa") }); i >= 0 {
			d.Node = "/dev/" + nodes[i]
		}
		found[owners[len(owners)-1]] = d
	}
	return found
}

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

// SRIOVAt returns the reader for the machine below a sysfs root: sriovnet on a live node, which is /sys,
// otherwise [SRIOVFiles].
func SRIOVAt(root string, sys fs.FS) SRIOV {
	if filepath.Clean(root) != "/sys" {
		return SRIOVFiles{sys}
	}
	return newLive(sys)
}

// SRIOVFiles reads the facts from any sysfs root.
type SRIOVFiles struct{ Sys fs.FS }

// vfIndexes returns the indexes of a PF's VFs by address. VFs without a link are missing.
func vfIndexes(sys fs.FS, pf topology.Address) map[string]int {
	indexes := map[string]int{}
	for _, name := range topology.Names(sys, FunctionFile(pf, "")) {
		number, found := strings.CutPrefix(name, "virtfn")
		if index, err := strconv.Atoi(number); found && err == nil {
			indexes[ReadLink(sys, FunctionFile(pf, "", name))] = index
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
func (f SRIOVFiles) Uplink(a topology.Address) string {
	if pf, err := topology.ParseAddress(ReadLink(f.Sys, FunctionFile(a, "", "physfn"))); err == nil {
		a = pf
	}
	for _, name := range f.Netdevs(a, "") {
		netdev := NetdevFile(f.Sys, a, "", name)
		port := ReadText(f.Sys, netdev+"/phys_port_name")
		if physicalPort.MatchString(port) && ReadText(f.Sys, netdev+"/phys_switch_id") != "" {
			return name
		}
	}
	return ""
}

// Representors implements SRIOV. Of several netdevs for one VF the first counts.
func (f SRIOVFiles) Representors(pf topology.Address) map[string]string {
	ports := map[int]string{}
	for _, name := range slices.Backward(f.Netdevs(pf, "")) {
		match := vfPort.FindStringSubmatch(ReadText(f.Sys, NetdevFile(f.Sys, pf, "", name, "phys_port_name")))
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
	for vf, index := range vfIndexes(f.Sys, pf) {
		if ports[index] != "" {
			found[vf] = ports[index]
		}
	}
	return found
}

// Netdevs implements SRIOV.
func (f SRIOVFiles) Netdevs(a topology.Address, aux string) []string {
	return topology.Netdevs(f.Sys, FunctionFile(a, aux))
}

// VFIO implements SRIOV.
func (f SRIOVFiles) VFIO(a topology.Address) bool {
	return ReadLink(f.Sys, FunctionFile(a, "", "driver")) == "vfio-pci"
}

// DefaultPKey implements SRIOV.
func (f SRIOVFiles) DefaultPKey(a topology.Address) string {
	devices := topology.RDMADevices(f.Sys, FunctionFile(a, ""))
	if len(devices) == 0 {
		return ""
	}
	return ReadText(f.Sys, FunctionFile(a, "", "infiniband", devices[0], "ports/1/pkeys/0"))
}
