// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

// unknownNodes finds GPUs and NICs without a NUMA node, on a machine with several.
func unknownNodes(n *Node) []Finding {
	if len(n.Tree.NUMANodes()) <= 1 {
		return nil
	}
	var list []string
	for _, d := range slices.Concat(n.gpus, n.pfs) {
		if _, known := d.NUMA.Number(); !known {
			list = append(list, fmt.Sprintf("/sys/bus/pci/devices/%s/numa_node: -1", d.Address))
		}
	}
	return []Finding{{
		ID: "numa-node", Severity: Warning,
		Summary:  fmt.Sprintf("The NUMA node of %s is unknown.", cli.Count(len(list), "GPU or NIC")),
		Evidence: someOf(list),
		Why: "The kubelet gets these devices without a NUMA node: a container's CPUs, " +
			"and its devices of the other kind, may come from another socket.",
		Fix: []string{
			"firmware with ACPI _PXM, or a hypervisor that exposes the NUMA node",
			"until then, after each boot: echo NODE > /sys/bus/pci/devices/ADDRESS/numa_node",
		},
	}}
}

// noGPU finds a node without GPUs.
func noGPU(n *Node) []Finding {
	return []Finding{{
		ID: "no-gpu", Severity: Error,
		Summary:  "There is no GPU of " + gpu.Titles() + ".",
		Evidence: evidenceIf(len(n.GPUs) == 0, "no such display controller or accelerator in /sys/bus/pci/devices"),
		Why:      "There is nothing to pair.",
		Fix:      []string{"keep the DaemonSets off this node"},
	}}
}

// gpuDrivers finds GPUs without their vendor's driver, which no plugin can offer.
func gpuDrivers(n *Node) []Finding {
	var list []string
	for _, d := range n.gpus {
		if _, ok := driverMaker(d); !ok {
			list = append(list, fmt.Sprintf("%s: driver %s", d.Address, cmp.Or(d.Driver, "none")))
		}
	}
	return []Finding{{
		ID: "gpu-driver", Severity: Error,
		Summary:  fmt.Sprintf("%s not driven by %s.", cli.CountAre(len(list), "GPU"), gpu.Drivers()),
		Evidence: someOf(list),
		Why:      "A container cannot use it, and it is not offered.",
		Fix: []string{
			"modprobe " + gpu.Drivers() + ", and take the GPU from a driver for virtual machines (driver_override)",
		},
	}}
}

// deviceNodes finds device nodes that are missing.
func deviceNodes(n *Node) []Finding {
	return []Finding{{
		ID: "device-nodes", Severity: Error,
		Summary:  fmt.Sprintf("%s missing.", cli.CountAre(len(n.missing), "device node")),
		Evidence: someOf(n.missing),
		Why:      "Containers with the device cannot open it.",
		Fix: []string{
			nodesFix(),
			"in a container: --dev-root with the node's /dev, as in --dev-root=/host/dev",
		},
	}}
}

// degradedLinks finds PCIe links below their maximum.
func degradedLinks(n *Node) []Finding {
	var list []string
	for _, d := range n.gpus {
		if l := d.PCIe; l.DegradedOf(true) {
			list = append(list, fmt.Sprintf("GPU %s: x%d of x%d", d.Address, l.Width, l.MaxWidth))
		}
	}
	for _, d := range n.pfs {
		if l := d.PCIe; l.DegradedOf(false) {
			list = append(list,
				fmt.Sprintf("NIC %s: %v GT/s x%d of %v GT/s x%d", d.Address, l.Speed, l.Width, l.MaxSpeed, l.MaxWidth))
		}
	}
	return []Finding{{
		ID: "degraded-link", Severity: Warning,
		Summary:  fmt.Sprintf("%s slower than its maximum.", cli.CountAre(len(list), "PCIe link")),
		Evidence: someOf(list),
		Why: "Traffic between GPU and NIC has only a fraction of the bandwidth; Tandem selects such NICs " +
			"last.",
		Fix: []string{
			"reseat the card or its riser, look for AER errors (dmesg), and read current_link_speed again",
		},
	}}
}

// findRedirects finds switch ports that send the traffic between GPU and NIC up to the root complex and back
// (ACS P2P request or completion redirect), although both share the switch.
func findRedirects(n *Node) []Finding {
	var list []string
	for _, port := range n.ports {
		if port.redirects {
			list = append(list, fmt.Sprintf("switch port %s: ACS redirects requests or completions", port.Address))
		}
	}
	ports := "1 switch port redirects"
	if len(list) > 1 {
		ports = fmt.Sprintf("%d switch ports redirect", len(list))
	}
	return []Finding{{
		ID: "acs-redirect", Severity: Warning,
		Summary:  ports + " traffic between GPUs and NICs to the root complex (ACS).",
		Evidence: someOf(list),
		Why: "Even with a common switch, every transfer crosses the CPU's root complex: GPUDirect " +
			"RDMA is slow.",
		Fix: []string{
			"on bare metal: disable ACS in the BIOS, or at each boot: setpci -s PORT ECAP_ACS+0x6.w=0000",
			"machines that pass devices to guests need ACS: use ATS and the direct translated bit instead",
		},
	}}
}

// unreadRedirects finds switch ports whose ACS the kernel hides.
func unreadRedirects(n *Node) []Finding {
	var list []string
	for _, port := range n.ports {
		if port.ACS == topology.ACSUnknown && port.hasConfig {
			list = append(list, fmt.Sprintf(
				"switch port %s: its configuration space is hidden beyond the first 64 bytes", port.Address))
		}
	}
	for _, port := range n.complexes.unread {
		list = append(list, fmt.Sprintf(
			"port %s: its configuration space is hidden beyond the first 64 bytes", port))
	}
	return []Finding{{
		ID: "acs-redirect", Severity: Unknown,
		Summary:  "Redirection of traffic to the root complex (ACS) is unknown.",
		Evidence: someOf(list),
		Why:      "Redirected traffic crosses the CPU's root complex, even if the GPU and the NIC share a switch.",
		Fix: []string{"run tandem doctor with CAP_SYS_ADMIN: without it only the first 64 bytes are " +
			"readable of the configuration space"},
	}}
}
