// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"testing"

	"github.com/tandem-k8s/tandem/cluster/machine"
	"github.com/tandem-k8s/tandem/topology"
)

// TestPairOfDMAAcrossNodes: the entry has the NUMA node of its GPU, whatever the node of a NIC with a DMA function.
func TestPairOfDMAAcrossNodes(t *testing.T) {
	t.Parallel()
	port, gpuNode, nicNode := topology.PortClass, topology.Node(0), topology.Node(1)
	at := func(domain uint32, bus, device uint8) topology.Address {
		return topology.Address{Domain: domain, Bus: bus, Device: device}
	}
	root, up, a, b, nicPort := at(8, 0, 0), at(8, 1, 0), at(8, 2, 0), at(8, 2, 1), at(0, 0, 0)
	gpu, nic := at(8, 6, 0), at(0, 3, 0)
	in := func(n topology.NUMANode, root string, bridges ...topology.Address) topology.Place {
		return topology.Place{RootComplex: root, Bridges: bridges, NUMA: n}
	}
	tree := topology.Assemble([]*topology.Device{
		{Address: root, Class: port}, {Address: up, Class: port}, {Address: a, Class: port},
		{Address: b, Class: port}, {Address: nicPort, Class: port},
		{Address: at(8, 3, 0), Class: 0x020700, Vendor: 0x15b3, Product: 0x2100, V3: "a"},
		{Address: gpu, Class: 0x030200, Vendor: 0x10de, Product: 0x2941},
		{Address: nic, Class: 0x020700, Vendor: 0x15b3, Product: 0x1023, V3: "a"},
	}, []topology.Place{
		in(gpuNode, "pci0008:00"), in(gpuNode, "pci0008:00", root), in(gpuNode, "pci0008:00", root, up),
		in(gpuNode, "pci0008:00", root, up), in(nicNode, "pci0000:00"),
		in(gpuNode, "pci0008:00", root, up, a), in(gpuNode, "pci0008:00", root, up, b),
		in(nicNode, "pci0000:00", nicPort),
	}, []int{0, 1})
	switches := machine.Switches(tree, []machine.Device{
		{Resource: "vf", Address: nic}, {Resource: "gpu", Address: gpu},
	})
	if len(switches) != 1 || switches[0].NUMA == nil || *switches[0].NUMA != 0 {
		t.Errorf("switches %+v, want one on NUMA node 0", switches)
	}
}
