// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"path"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// vendor is a maker of GPUs, as far as an examination looks at its driver and its own device plugin.
type vendor struct {
	title   string
	driver  string // of its PCI functions
	control string // device node that all of its GPUs share
	render  bool   // each GPU has a render node
	// whether a socket in the kubelet's folder is that of the vendor's own device plugin
	socket func(name string) bool
}

var vendors = []vendor{
	{
		title: "AMD", driver: "amdgpu", control: "kfd", render: true,
		// kubevirt's device-plugin-manager: no suffix
		socket: func(name string) bool { return strings.HasPrefix(name, "amd.com_") },
	},
	{
		title: "NVIDIA", driver: "nvidia", control: "nvidiactl",
		// internal/plugin/server.go there
		socket: func(name string) bool { return strings.HasPrefix(name, "nvidia-") && path.Ext(name) == ".sock" },
	},
}

// driving returns the vendor whose driver has a GPU; false where another driver has it, or none.
func driving(d *topology.Device) (vendor, bool) {
	i := slices.IndexFunc(vendors, func(v vendor) bool { return v.driver == d.Driver })
	if i < 0 {
		return vendor{}, false
	}
	return vendors[i], true
}

// named lists the vendors for people, as "AMD or NVIDIA".
func named(name func(vendor) string) string {
	var names []string
	for _, v := range vendors {
		names = append(names, name(v))
	}
	return strings.Join(names, " or ")
}

func titleOf(v vendor) string  { return v.title }
func driverOf(v vendor) string { return v.driver }
