package sysfs

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// VDPADrivers are the drivers of the vDPA bus by the values of vdpaType (SupportedVdpaTypes in
// pkg/types/types.go of the stock plugin).
var VDPADrivers = map[string]string{"virtio": "virtio_vdpa", "vhost": "vhost_vdpa"}

// VDPADevice is a vDPA device that hangs on a PCI function (Documentation/ABI/testing/sysfs-bus-vdpa).
type VDPADevice struct {
	Name string // "vdpa0"
	Kind string // a value of vdpaType, "" for a driver that is neither
	Node string // of vhost: "/dev/vhost-vdpa-0"
}

// VDPADevices finds them all by the function they hang on. The stock plugin asks netlink for the same; of
// several on one function it takes the first.
func VDPADevices(sys fs.FS) map[topology.Address]VDPADevice {
	const bus = "bus/vdpa/devices"
	found := map[topology.Address]VDPADevice{}
	for _, name := range Names(sys, bus) {
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
		nodes := Names(sys, path.Join(bus, name))
		if i := slices.IndexFunc(nodes, func(n string) bool { return strings.HasPrefix(n, "vhost-vdpa") }); i >= 0 {
			d.Node = "/dev/" + nodes[i]
		}
		found[parent] = d
	}
	return found
}
