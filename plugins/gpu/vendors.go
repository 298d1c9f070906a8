// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// Maker is a vendor of GPUs.
type Maker struct {
	Vendor  string // name, as in --vendor
	Title   string // its name for people
	ID      uint16 // of its PCI functions
	Driver  string // the driver of its PCI functions, and the kernel module
	Program string // name of the vendor's own device plugin, in whose place tandem-gpu can be started
	Awaits  string // the software that tandem-gpu waits for on a node with GPUs, and the remedy, for people
}

// Makers lists all vendors of GPUs. CONTRIBUTING lists the other files for a new vendor.
var Makers = []Maker{
	{
		Vendor: AMD, Title: "AMD", ID: amdVendor, Driver: "amdgpu", Program: "k8s-device-plugin",
		Awaits: "the driver amdgpu",
	},
	{
		Vendor: NVIDIA, Title: "NVIDIA", ID: nvidiaVendor, Driver: "nvidia", Program: "nvidia-device-plugin",
		Awaits: "NVML: " + NVMLRemedy,
	},
}

// Vendor returns the maker of a GPU, AMD or NVIDIA, or "" for any other function, including the display
// controllers of board management controllers.
func Vendor(d *topology.Device) string {
	for _, m := range Makers {
		if d.Class.IsGPU() && d.Vendor == m.ID {
			return m.Vendor
		}
	}
	return ""
}

// MakerOf returns the row of a vendor by its name; false if no row has the name.
func MakerOf(vendor string) (Maker, bool) {
	for _, m := range Makers {
		if m.Vendor == vendor {
			return m, true
		}
	}
	return Maker{}, false
}

// Titles lists the vendors for people, as "AMD or NVIDIA".
func Titles() string { return list(func(m Maker) string { return m.Title }) }

// Drivers lists the vendors' drivers for people, as "amdgpu or nvidia".
func Drivers() string { return list(func(m Maker) string { return m.Driver }) }

func list(name func(Maker) string) string {
	var names []string
	for _, m := range Makers {
		names = append(names, name(m))
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
