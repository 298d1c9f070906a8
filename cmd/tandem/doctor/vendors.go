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
	maker   string // program that makes the device nodes; "" if the driver does
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
		title: "NVIDIA", driver: "nvidia", control: "nvidiactl", maker: "nvidia-modprobe",
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

// nodesFix returns the remedy for missing device nodes: the modules to load, and the programs that make
// nodes.
func nodesFix() string {
	var modules []string
	var makers strings.Builder
	for _, v := range vendors {
		modules = append(modules, v.driver)
		if v.maker != "" {
			makers.WriteString("; " + v.title + "'s nodes are created by " + v.maker)
		}
	}
	modules = append(modules, "ib_uverbs")
	return "modprobe the node's module (" + strings.Join(modules, ", ") + " or rdma_ucm)" + makers.String()
}

func titleOf(v vendor) string  { return v.title }
func driverOf(v vendor) string { return v.driver }
