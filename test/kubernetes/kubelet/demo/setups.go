// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
)

// setup is a machine with VFs for the demo.
type setup struct {
	rig.Setup
	about string
}

// sizes are the requests: as many GPUs and as many VFs.
var sizes = []int{1, 2, 4, 8}

// refusing is the set-up in which an empty node refuses requests: the restricted policy admits a container
// only if all its resources want the same number of NUMA nodes, and as many VFs as GPUs want fewer nodes.
const refusing = "oci-mi300x-derived, 4 VFs per PF"

// setups are the recorded machines. Machines in a single set-up have as many VFs on a NUMA node as GPUs or
// partitions, or VFs without NUMA hint, so that the restricted policy admits every size; the first machine
// shows the refusals otherwise.
var setups = []setup{
	{rig.Setup{Machine: "oci-mi300x-derived", VFsPerPF: 1}, "8 GPUs and 8 NICs, one of each per switch"},
	{rig.Setup{Machine: "oci-mi300x-derived", VFsPerPF: 4, ExcludeTopology: true},
		"the same, VFs without NUMA hint (excludeTopology)"},
	{rig.Setup{Machine: "oci-mi300x-derived", VFsPerPF: 4}, "the same, VFs with NUMA hint"},
	{rig.Setup{Machine: "amd-mi300x-smc-thor2", VFsPerPF: 1},
		"a complete recording; the ninth NIC has no GPU beside it"},
	{rig.Setup{Machine: "amd-mi250-16gcd-8nic", VFsPerPF: 2},
		"16 GPUs, two per switch with one NIC, on 4 NUMA nodes"},
	{rig.Setup{Machine: "amd-mi300x-cpx-kfd"},
		"8 GPUs in 63 partitions, no NIC: partitions of one card belong together"},
	{rig.Setup{Machine: "amd-mi300x-smc-thor2-cpx-derived", VFsPerPF: 8},
		"63 partitions, a VF for each beside it"},
	{rig.Setup{Machine: "nv-h100-oci", VFsPerPF: 1}, "8 GPUs and 8 NICs, one of each per switch"},
	{rig.Setup{Machine: "nv-h100-aws-p5", VFsPerPF: 1, ExcludeTopology: true},
		"a guest with four EFA devices beside every GPU; that they have VFs is made up"},
	{rig.Setup{Machine: "nv-h800-8x8", VFsPerPF: 1}, "8 GPUs and 8 NICs, one of each per switch"},
	{rig.Setup{Machine: "nv-h200-vm-flat", VFsPerPF: 1},
		"a guest that hides its switches and NUMA nodes: one GPU looks as near to a VF as another"},
	{rig.Setup{Machine: "nv-4xrtx6000ada-2cx7", VFsPerPF: 1},
		"4 GPUs and two NICs with two ports, every card on a host bridge of its own"},
	{rig.Setup{Machine: "nv-a100pcie-cx6dx-vf-partial", VFsPerPF: 2},
		"half a machine: 4 GPUs and one NIC with 2 VFs in all, on one switch; NUMA nodes unknown"},
	{rig.Setup{Machine: "nv-gb200-derived", VFsPerPF: 1},
		"4 GPUs and 4 NICs on root ports of Grace: NVLink-C2C"},
	{rig.Setup{Machine: "nv-gb200-oke-derived", VFsPerPF: 1, ExcludeTopology: true},
		"a DMA function of each NIC beside its GPU"},
	{rig.Setup{Machine: "nv-gb300-aks-derived", VFsPerPF: 1},
		"a guest with NVLink-C2C and a VF for each GPU; that they have VFs is made up"},
	{rig.Setup{Machine: "nv-gb300-aks-dma-derived", VFsPerPF: 1}, "4 GPUs and 4 NICs with DMA functions"},
	{rig.Setup{Machine: "nv-vera-derived", VFsPerPF: 1, ExcludeTopology: true},
		"4 GPUs and 4 NICs with two ports: NVLink-C2C of Vera"},
	{rig.Setup{Machine: "nv-cx8-inline-derived", VFsPerPF: 2}, "8 GPUs, two below the switch of each of 4 NICs"},
	{rig.Setup{Machine: "nv-bf3-derived", VFsPerPF: 1},
		"4 GPUs, one below the switch of each of 4 NICs; a fifth NIC"},
}

func machineNames() []string {
	var names []string
	for _, s := range setups {
		if !slices.Contains(names, s.Machine) {
			names = append(names, s.Machine)
		}
	}
	return names
}
