package rdma

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// vdpaDrivers are the drivers of the vDPA bus by the values of vdpaType (SupportedVdpaTypes in pkg/types/types.go of the
// stock plugin).
var vdpaDrivers = map[string]string{"virtio": "virtio_vdpa", "vhost": "vhost_vdpa"}

// vdpaDevice is a vDPA device that hangs on a PCI function (Documentation/ABI/testing/sysfs-bus-vdpa).
type vdpaDevice struct {
	name string // "vdpa0"
	kind string // a value of vdpaType, "" for a driver that is neither
	node string // of vhost: "/dev/vhost-vdpa-0"
}

// vdpaDevices finds them all by the function they hang on. The stock plugin asks netlink for the same; of several on one
// function it takes the first.
func vdpaDevices(sys fs.FS) map[topology.Address]vdpaDevice {
	const bus = "bus/vdpa/devices"
	found := map[topology.Address]vdpaDevice{}
	for _, name := range readNames(sys, bus) {
		target, err := fs.ReadLink(sys, path.Join(bus, name))
		if err != nil {
			continue
		}
		parent, ok := lastAddress(target)
		if _, taken := found[parent]; !ok || taken {
			continue
		}
		d := vdpaDevice{name: name}
		driver := readLink(sys, path.Join(bus, name, "driver"))
		for kind, its := range vdpaDrivers {
			if its == driver {
				d.kind = kind
			}
		}
		nodes := readNames(sys, path.Join(bus, name))
		if i := slices.IndexFunc(nodes, func(n string) bool { return strings.HasPrefix(n, "vhost-vdpa") }); i >= 0 {
			d.node = "/dev/" + nodes[i]
		}
		found[parent] = d
	}
	return found
}

// lastAddress is the PCI function that is last on the way to a device.
func lastAddress(target string) (topology.Address, bool) {
	for _, element := range slices.Backward(strings.Split(target, "/")) {
		if a, err := topology.ParseAddress(element); err == nil {
			return a, true
		}
	}
	return topology.Address{}, false
}

func (f *function) vdpaType() string {
	if f.machine.vdpa == nil {
		f.machine.vdpa = vdpaDevices(f.machine.sys)
	}
	return f.machine.vdpa[f.Address].kind
}
