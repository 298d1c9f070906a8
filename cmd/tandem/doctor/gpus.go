// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/finding"
	"github.com/tandem-k8s/tandem/topology"
)

// unknownNodes finds GPUs and NICs without a NUMA node, on a machine with several.
func unknownNodes(h hardware) []Finding {
	if len(h.tree.NUMANodes()) <= 1 {
		return nil
	}
	var list []string
	note := func(d *topology.Device) {
		if _, known := d.NUMA.Number(); !known {
			list = append(list, fmt.Sprintf("/sys/bus/pci/devices/%s/numa_node: -1", d.Address))
		}
	}
	for _, d := range h.gpus {
		note(d)
	}
	for _, pf := range h.pfs {
		note(pf.Device)
	}
	return finding.Of(list, Finding{
		ID: "numa-node", Severity: Warning,
		Summary: fmt.Sprintf("The NUMA node of %s is unknown.", finding.Count(len(list), "GPU or NIC")),
		Why: "They are offered to the kubelet without a node: a container's CPUs, " +
			"and the other half of its devices, may come from another socket.",
		Fix: []string{
			"a firmware that tells it (ACPI _PXM), or a hypervisor that passes it on",
			"until then, after every start: echo NODE > /sys/bus/pci/devices/ADDRESS/numa_node",
		},
	})
}

// noGPU finds a node without GPUs.
func noGPU(h hardware) []Finding {
	if len(h.offeredGPUs) > 0 {
		return nil
	}
	return []Finding{{
		ID: "no-gpu", Severity: Error,
		Summary:  "There is no GPU of " + named(titleOf) + ".",
		Evidence: []string{"no such display controller or accelerator in /sys/bus/pci/devices"},
		Why:      "There is nothing to pair.",
		Fix:      []string{"keep the DaemonSets off this node"},
	}}
}

// gpuDrivers finds GPUs without their vendor's driver, which no plugin can offer.
func gpuDrivers(h hardware) []Finding {
	var list []string
	for _, d := range h.gpus {
		if _, ok := driving(d); !ok {
			list = append(list, fmt.Sprintf("%s: driver %s", d.Address, cmp.Or(d.Driver, "none")))
		}
	}
	return finding.Of(list, Finding{
		ID: "gpu-driver", Severity: Error,
		Summary: fmt.Sprintf("%s not driven by %s.", finding.CountAre(len(list), "GPU"), named(driverOf)),
		Why:     "A container cannot use it, and it is not offered.",
		Fix: []string{
			"modprobe amdgpu (or nvidia), and take the GPU from a driver for virtual machines (driver_override)",
		},
	})
}

// deviceNodes finds device nodes that are missing.
func deviceNodes(h hardware) []Finding {
	return finding.Of(h.missing, Finding{
		ID: "device-nodes", Severity: Error,
		Summary: fmt.Sprintf("%s missing.", finding.CountAre(len(h.missing), "device node")),
		Why:     "A container that is given the device cannot open it.",
		Fix: []string{
			"modprobe amdgpu, nvidia, ib_uverbs, rdma_ucm: the one whose node it is; NVIDIA's nodes are made by " +
				"nvidia-modprobe",
			"in a container: --dev-root with the node's /dev, as in --dev-root=/host/dev",
		},
	})
}
