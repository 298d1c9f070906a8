// SPDX-License-Identifier: Apache-2.0

// Package sysfs reads facts about a PCI function that the topology tree does not contain: single files, vDPA
// devices, and SR-IOV facts, see [SRIOV]. A fact that cannot be read is an empty value, never an error that
// ends discovery. All facts are read below the root passed in, on a live node as well: these files have the
// same content as netlink, which works only for the local machine. On a live node SR-IOV facts come from
// sriovnet, which supports only /sys.
package sysfs

import (
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// File returns the path of a file of a PCI function, or of one of its auxiliary devices if aux names one.
func File(a topology.Address, aux string, elements ...string) string {
	return path.Join(topology.PCIDevices, a.String(), aux, path.Join(elements...))
}

// NetFile returns the path of a file of the netdevs of a PCI function, or of one of its auxiliary devices.
func NetFile(sys fs.FS, a topology.Address, aux string, elements ...string) string {
	return path.Join(topology.NetFolder(sys, File(a, aux)), path.Join(elements...))
}

// Text returns the content of a file without surrounding white space; "" if the file cannot be read.
func Text(sys fs.FS, file string) string {
	content, err := fs.ReadFile(sys, file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

// Link returns the last element of a link's target; "" if the link does not exist.
func Link(sys fs.FS, file string) string {
	target, err := fs.ReadLink(sys, file)
	if err != nil {
		return ""
	}
	return path.Base(target)
}

// Gone reports whether the device of a file no longer exists.
func Gone(sys fs.FS, file string) bool {
	_, err := fs.Stat(sys, file)
	return topology.Gone(err)
}

// subfunction is the name of the auxiliary device of a sub-function.
var subfunction = regexp.MustCompile(`^[^.]+\.sf\.\d+$`)

// Owners returns the IDs of the devices with a netdev: the last PCI function on the path of the netdev, which
// may be an indirect parent (virtio, which the stock plugin misses and offers), and the sub-function below
// the function if any; none for a virtual netdev.
func Owners(sys fs.FS, netdev string) (ids []string) {
	target, err := fs.ReadLink(sys, NetdevLink(netdev))
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

// NetdevLink returns the path of the link to a netdev by its name.
func NetdevLink(netdev string) string { return "class/net/" + netdev }

// Parent returns the last PCI function on the path of a link to a device; false if there is none or the link
// does not exist.
func Parent(sys fs.FS, link string) (topology.Address, bool) {
	target, err := fs.ReadLink(sys, link)
	if err != nil {
		return topology.Address{}, false
	}
	for _, element := range slices.Backward(strings.Split(target, "/")) {
		if a, err := topology.ParseAddress(element); err == nil {
			return a, true
		}
	}
	return topology.Address{}, false
}

// RDMADevices returns the RDMA devices of a function, or of one of its auxiliary devices if aux names one,
// sorted, without those whose names cannot be passed on. In exclusive mode the RDMA device of a VF in a
// container is hidden from the node. Its character devices are not hidden and name their device: of the
// classes in drivers/infiniband/core only infiniband has namespaces.
func RDMADevices(sys fs.FS, a topology.Address, aux string) []string {
	if names := topology.RDMADevices(sys, File(a, aux)); len(names) > 0 {
		return names
	}
	var names []string
	for _, node := range topology.Names(sys, File(a, aux, "infiniband_verbs")) {
		if name := Text(sys, File(a, aux, "infiniband_verbs", node, "ibdev")); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return topology.PassableNames(names)
}

// VDPADrivers maps the values of vdpaType to drivers of the vDPA bus (SupportedVdpaTypes in
// pkg/types/types.go of the stock plugin).
var VDPADrivers = map[string]string{"virtio": "virtio_vdpa", "vhost": "vhost_vdpa"}

// VDPADevice is a vDPA device of a PCI function (Documentation/ABI/testing/sysfs-bus-vdpa).
type VDPADevice struct {
	Name string // "vdpa0"
	Kind string // a value of vdpaType, "" for any other driver
	Node string // of vhost: "/dev/vhost-vdpa-0"
}

// VDPADevices returns all vDPA devices by function. The stock plugin reads them from netlink; of several
// devices of one function it uses the first.
func VDPADevices(sys fs.FS) map[topology.Address]VDPADevice {
	const bus = "bus/vdpa/devices"
	found := map[topology.Address]VDPADevice{}
	for _, name := range topology.Names(sys, bus) {
		parent, ok := Parent(sys, path.Join(bus, name))
		if _, taken := found[parent]; !ok || taken {
			continue
		}
		d := VDPADevice{Name: name}
		driver := Link(sys, path.Join(bus, name, "driver"))
		for kind, its := range VDPADrivers {
			if its == driver {
				d.Kind = kind
			}
		}
		nodes := topology.Names(sys, path.Join(bus, name))
		if i := slices.IndexFunc(nodes, func(n string) bool { return strings.HasPrefix(n, "vhost-vdpa") }); i >= 0 {
			d.Node = "/dev/" + nodes[i]
		}
		found[parent] = d
	}
	return found
}
