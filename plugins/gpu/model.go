// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"fmt"

	"github.com/tandem-k8s/tandem/topology"
)

// AMD and NVIDIA are the vendors of GPUs.
const (
	AMD    = "amd"
	NVIDIA = "nvidia"
)

// Vendors of GPUs, by their PCI IDs.
const (
	amdVendor    = 0x1002
	nvidiaVendor = 0x10de
)

// models names accelerators by vendor and device ID, after the PCI ID database (pci.ids of 2026-07).
var models = map[[2]uint16]string{
	{amdVendor, 0x738c}: "MI100",
	{amdVendor, 0x738e}: "MI100",
	{amdVendor, 0x7408}: "MI250X",
	{amdVendor, 0x740c}: "MI250X/MI250",
	{amdVendor, 0x740f}: "MI210",
	{amdVendor, 0x74a0}: "MI300A",
	{amdVendor, 0x74a1}: "MI300X",
	{amdVendor, 0x74a2}: "MI308X",
	{amdVendor, 0x74a5}: "MI325X",
	{amdVendor, 0x74a9}: "MI300X HF",
	{amdVendor, 0x74b5}: "MI300X VF",
	{amdVendor, 0x74b9}: "MI325X VF",
	{amdVendor, 0x75a0}: "MI350X",
	{amdVendor, 0x75a3}: "MI355X",

	{nvidiaVendor, 0x1db1}: "V100 SXM2 16GB",
	{nvidiaVendor, 0x1db4}: "V100 PCIe 16GB",
	{nvidiaVendor, 0x1db5}: "V100 SXM2 32GB",
	{nvidiaVendor, 0x1db6}: "V100 PCIe 32GB",
	{nvidiaVendor, 0x1eb8}: "T4",
	{nvidiaVendor, 0x20b0}: "A100 SXM4 40GB",
	{nvidiaVendor, 0x20b1}: "A100 PCIe 40GB",
	{nvidiaVendor, 0x20b2}: "A100 SXM4 80GB",
	{nvidiaVendor, 0x20b5}: "A100 PCIe 80GB",
	{nvidiaVendor, 0x20b7}: "A30 PCIe",
	{nvidiaVendor, 0x20f1}: "A100 PCIe 40GB",
	{nvidiaVendor, 0x20f3}: "A800 SXM4 80GB",
	{nvidiaVendor, 0x20f5}: "A800 PCIe 80GB",
	{nvidiaVendor, 0x2235}: "A40",
	{nvidiaVendor, 0x2321}: "H100L 94GB",
	{nvidiaVendor, 0x2322}: "H800 PCIe",
	{nvidiaVendor, 0x2324}: "H800",
	{nvidiaVendor, 0x2329}: "H20",
	{nvidiaVendor, 0x2330}: "H100 SXM5 80GB",
	{nvidiaVendor, 0x2331}: "H100 PCIe",
	{nvidiaVendor, 0x2335}: "H200 SXM 141GB",
	{nvidiaVendor, 0x2339}: "H100 SXM5 94GB",
	{nvidiaVendor, 0x233b}: "H200 NVL",
	{nvidiaVendor, 0x2342}: "GH200",
	{nvidiaVendor, 0x26b1}: "RTX 6000 Ada",
	{nvidiaVendor, 0x26b5}: "L40",
	{nvidiaVendor, 0x27b8}: "L4",
	{nvidiaVendor, 0x2901}: "B200",
	{nvidiaVendor, 0x2941}: "GB200",
	{nvidiaVendor, 0x2bb5}: "RTX PRO 6000 Server",
	{nvidiaVendor, 0x3182}: "B300 SXM6",
}

// Model returns a GPU's name, or its PCI IDs, "1002:74a1", for an unknown model.
func Model(d *topology.Device) string {
	if name, ok := models[[2]uint16{d.Vendor, d.Product}]; ok {
		return name
	}
	return fmt.Sprintf("%04x:%04x", d.Vendor, d.Product)
}
