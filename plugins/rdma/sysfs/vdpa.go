// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

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
