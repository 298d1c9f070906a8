// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"fmt"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// AMD and NVIDIA are the vendors of GPUs.
const (
	AMD    = "amd"
	NVIDIA = "nvidia"
)

// Maker is a vendor of GPUs.
type Maker struct {
	Vendor   string            // name, as in --vendor
	Title    string            // its name for people
	ID       uint16            // of its PCI functions
	Models   map[uint16]string // accelerators by PCI device ID
	Resource string            // resource name of whole GPUs
	Driver   string            // the driver of its PCI functions, and the kernel module
	Program  string            // the vendor's own device plugin, in whose place tandem-gpu can be started
	Awaits   string            // software that tandem-gpu waits for on a node with GPUs, and the remedy
	// AwaitsDriver reports whether Awaits is the driver, so that tandem-gpu does not wait while the driver has
	// GPUs.
	AwaitsDriver bool
}

// Makers lists all vendors of GPUs. CONTRIBUTING lists the other files for a new vendor.
var Makers = []Maker{
	{
		Vendor: AMD, Title: "AMD", ID: 0x1002, Models: amdModels, Resource: "amd.com/gpu",
		Driver: "amdgpu", Program: "k8s-device-plugin",
		Awaits: "the driver amdgpu", AwaitsDriver: true,
	},
	{
		Vendor: NVIDIA, Title: "NVIDIA", ID: 0x10de, Models: nvidiaModels, Resource: "nvidia.com/gpu",
		Driver: "nvidia", Program: "nvidia-device-plugin",
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

// Model returns a GPU's name, or its PCI IDs, "1002:74a1", for an unknown model; "1002:unknown" without a
// product ID.
func Model(d *topology.Device) string {
	for _, m := range Makers {
		if name, ok := m.Models[d.Product]; ok && d.Vendor == m.ID {
			return name
		}
	}
	if d.Product == 0 {
		return fmt.Sprintf("%04x:unknown", d.Vendor)
	}
	return fmt.Sprintf("%04x:%04x", d.Vendor, d.Product)
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

// Names returns the vendors' names, as in --vendor.
func Names() (names []string) {
	for _, m := range Makers {
		names = append(names, m.Vendor)
	}
	return names
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

// Accelerators by PCI device ID, after the PCI ID database (pci.ids of 2026-07).
var (
	amdModels = map[uint16]string{
		0x738c: "MI100",
		0x738e: "MI100",
		0x7408: "MI250X",
		0x740c: "MI250X/MI250",
		0x740f: "MI210",
		0x74a0: "MI300A",
		0x74a1: "MI300X",
		0x74a2: "MI308X",
		0x74a5: "MI325X",
		0x74a9: "MI300X HF",
		0x74b5: "MI300X VF",
		0x74b9: "MI325X VF",
		0x75a0: "MI350X",
		0x75a3: "MI355X",
	}
	nvidiaModels = map[uint16]string{
		0x1db1: "V100 SXM2 16GB",
		0x1db4: "V100 PCIe 16GB",
		0x1db5: "V100 SXM2 32GB",
		0x1db6: "V100 PCIe 32GB",
		0x1eb8: "T4",
		0x20b0: "A100 SXM4 40GB",
		0x20b1: "A100 PCIe 40GB",
		0x20b2: "A100 SXM4 80GB",
		0x20b5: "A100 PCIe 80GB",
		0x20b7: "A30 PCIe",
		0x20f1: "A100 PCIe 40GB",
		0x20f3: "A800 SXM4 80GB",
		0x20f5: "A800 PCIe 80GB",
		0x2235: "A40",
		0x2321: "H100L 94GB",
		0x2322: "H800 PCIe",
		0x2324: "H800",
		0x2329: "H20",
		0x2330: "H100 SXM5 80GB",
		0x2331: "H100 PCIe",
		0x2335: "H200 SXM 141GB",
		0x2339: "H100 SXM5 94GB",
		0x233b: "H200 NVL",
		0x2342: "GH200",
		0x26b1: "RTX 6000 Ada",
		0x26b5: "L40",
		0x27b8: "L4",
		0x2901: "B200",
		0x2941: "GB200",
		0x2bb5: "RTX PRO 6000 Server",
		0x3182: "B300 SXM6",
		0x31c2: "GB300",
	}
)
