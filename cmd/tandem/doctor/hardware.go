// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

const pciDevices = "bus/pci/devices"

// text reads a file of a PCI function, "" where there is none.
func (e *examination) text(a topology.Address, file string) string {
	content, err := fs.ReadFile(e.Sys, path.Join(pciDevices, a.String(), file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

// cards are the PCI functions of the GPUs, each once.
func (e *examination) cards() []*topology.Device {
	var list []*topology.Device
	for _, g := range e.GPUs {
		if d, ok := e.Tree.Device(g.Address); ok && !slices.Contains(list, d) {
			list = append(list, d)
		}
	}
	return list
}

// ports are the PFs that matter: those with RDMA or with VFs, on the switch of a GPU or with VFs anywhere.
func (e *examination) ports() []*topology.Device {
	var list []*topology.Device
	for d := range e.Tree.Devices() {
		if d.Class.IsNetwork() && !d.IsVF() && (len(d.VFs) > 0 || len(d.RDMA) > 0 && e.nearGPU(d)) {
			list = append(list, d)
		}
	}
	return list
}

func (e *examination) nearGPU(d *topology.Device) bool {
	return slices.ContainsFunc(e.GPUs, func(g Device) bool {
		return e.Tree.Distance(g.Address, d.Address).Level.SameSwitch()
	})
}

// unknownNodes: on a machine with one node there is nothing to know.
func (e *examination) unknownNodes() {
	if len(e.Tree.NUMANodes()) <= 1 {
		return
	}
	var list []string
	for _, d := range slices.Concat(e.cards(), e.ports()) {
		if _, known := d.NUMA.Number(); !known {
			list = append(list, fmt.Sprintf("/sys/bus/pci/devices/%s/numa_node: -1", d.Address))
		}
	}
	e.findIn(list, Finding{
		ID: "numa-node", Severity: Warning,
		Summary: fmt.Sprintf("The NUMA node of %s is unknown.", count(len(list), "GPU or NIC")),
		Why: "They are offered to the kubelet without a node: a container's CPUs, " +
			"and the other half of its devices, may come from another socket.",
		Fix: []string{
			"a firmware that tells it (ACPI _PXM), or a hypervisor that passes it on",
			"until then, after every start: echo NODE > /sys/bus/pci/devices/ADDRESS/numa_node",
		},
	})
}

// gpuDrivers: a GPU without its vendor's driver cannot be offered.
func (e *examination) gpuDrivers() {
	if len(e.GPUs) == 0 {
		e.find(Finding{
			ID: "no-gpu", Severity: Error,
			Summary:  "There is no GPU of " + named(titleOf) + ".",
			Evidence: []string{"no such display controller or accelerator in /sys/bus/pci/devices"},
			Why:      "There is nothing to pair.",
			Fix:      []string{"keep the DaemonSets off this node"},
		})
	}
	var list []string
	for _, d := range e.cards() {
		if _, ok := driving(d); !ok {
			list = append(list, fmt.Sprintf("%s: driver %s", d.Address, orNone(d.Driver)))
		}
	}
	e.findIn(list, Finding{
		ID: "gpu-driver", Severity: Error,
		Summary: fmt.Sprintf("%s not driven by %s.", isAre(len(list), "GPU"), named(driverOf)),
		Why:     "A container cannot use it, and it is not offered.",
		Fix: []string{
			"modprobe amdgpu (or nvidia), and take the GPU from a driver for virtual machines (driver_override)",
		},
	})
}

func orNone(name string) string {
	if name == "" {
		return "none"
	}
	return name
}

func isAre(n int, what string) string {
	if n == 1 {
		return "1 " + what + " is"
	}
	return fmt.Sprintf("%d %ss are", n, what)
}

// links: a GPU saves power by a slower link while it is idle, so that of GPUs the width alone counts.
func (e *examination) links() {
	var list []string
	for _, d := range e.cards() {
		if l := d.PCIe; l.Width > 0 && l.Width < l.MaxWidth {
			list = append(list, fmt.Sprintf("GPU %s: x%d of x%d", d.Address, l.Width, l.MaxWidth))
		}
	}
	for _, d := range e.ports() {
		if l := d.PCIe; l.Degraded() {
			list = append(list,
				fmt.Sprintf("NIC %s: %v GT/s x%d of %v GT/s x%d", d.Address, l.Speed, l.Width, l.MaxSpeed, l.MaxWidth))
		}
	}
	e.findIn(list, Finding{
		ID: "degraded-link", Severity: Warning,
		Summary: fmt.Sprintf("%s slower than it could be.", isAre(len(list), "PCIe link")),
		Why:     "Traffic between GPU and NIC has a fraction of the bandwidth; Tandem takes such NICs last.",
		Fix: []string{
			"reseat the card or its riser, look for AER errors (dmesg), and read current_link_speed again",
		},
	})
}

// deviceNodes: what containers are given has to be there.
func (e *examination) deviceNodes() {
	var missing []string
	want := func(node, whose string) {
		file := path.Join(e.DevRoot, node)
		if _, err := os.Lstat(file); err != nil && !e.denied(file, err) {
			missing = append(missing, fmt.Sprintf("/dev/%s of %s", node, whose))
		}
	}
	for _, d := range e.cards() {
		v, ok := driving(d)
		if !ok {
			continue
		}
		want(v.control, "all "+v.title+" GPUs")
		for _, name := range e.names(d.Address, "drm") {
			if v.render && strings.HasPrefix(name, "renderD") {
				want("dri/"+name, "GPU "+d.Address.String())
			}
		}
	}
	for _, vf := range e.VFs {
		for _, name := range e.names(vf.Address, "infiniband_verbs") {
			want("infiniband/"+name, "VF "+vf.Address.String())
			want("infiniband/rdma_cm", "all RDMA devices")
		}
	}
	slices.Sort(missing)
	missing = slices.Compact(missing)
	e.findIn(missing, Finding{
		ID: "device-nodes", Severity: Error,
		Summary: fmt.Sprintf("%s missing.", isAre(len(missing), "device node")),
		Why:     "A container that is given the device cannot open it.",
		Fix: []string{
			"modprobe amdgpu, nvidia, ib_uverbs, rdma_ucm: the one whose node it is; NVIDIA's nodes are made by " +
				"nvidia-modprobe",
			"in a container: --dev-root with the node's /dev, as in --dev-root=/host/dev",
		},
	})
}

func (e *examination) names(a topology.Address, dir string) []string {
	entries, _ := fs.ReadDir(e.Sys, path.Join(pciDevices, a.String(), dir)) // absent for many
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}
