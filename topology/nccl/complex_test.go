// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"testing"

	"github.com/tandem-k8s/tandem/topology"
)

// TestComplexesInFile: a topology file of Tandem read back keeps the distances of a DMA and a C2C machine.
func TestComplexesInFile(t *testing.T) {
	t.Parallel()
	for name, tree := range map[string]*topology.Tree{"dma": dmaTree(), "c2c": c2cTree()} {
		gpu, nic := topology.Address{Domain: 8, Bus: 6}, topology.Address{Bus: 3}
		want := tree.Distance(gpu, nic).Level
		if !want.Direct() {
			t.Fatalf("%s: %s", name, want)
		}
		text := written(t, tree, gpu, nic)
		if got := apply(t, text, tree).Distance(gpu, nic).Level; got != want {
			t.Errorf("%s: %s, want %s:\n%s", name, got, want, text)
		}
	}
}

// TestOneFunctionOfTwo: a file has one place for a NIC, also if one of its PFs alone has a DMA function.
func TestOneFunctionOfTwo(t *testing.T) {
	t.Parallel()
	gpu, nic := topology.Address{Domain: 8, Bus: 6}, topology.Address{Bus: 3}
	other := topology.Address{Bus: 3, Function: 1}
	tree := dmaTree()
	functions, places := []*topology.Device{}, []topology.Place{}
	for d := range tree.Devices() {
		functions = append(functions, d)
		places = append(places, topology.Place{RootComplex: d.RootComplex(), Bridges: d.Bridges(), NUMA: d.NUMA})
	}
	d, _ := tree.Device(nic)
	functions = append(functions, &topology.Device{
		Address: other, Class: d.Class, Vendor: d.Vendor, Product: d.Product, V3: "b",
	})
	places = append(places, topology.Place{RootComplex: d.RootComplex(), Bridges: d.Bridges(), NUMA: d.NUMA})
	tree = topology.Assemble(functions, places, []int{0, 1})
	if got := tree.Distance(gpu, other).Level; got != topology.NODE {
		t.Fatalf("PF without a DMA function: %s", got)
	}
	text := written(t, tree, gpu, nic, other)
	if got := apply(t, text, tree).Distance(gpu, nic).Level; got != topology.PIX {
		t.Errorf("%s:\n%s", got, text)
	}
}

func at(domain uint32, bus, device uint8) topology.Address {
	return topology.Address{Domain: domain, Bus: bus, Device: device}
}

func dmaTree() *topology.Tree {
	port, numa := topology.PortClass, topology.Node(0)
	root, up, a, b := at(8, 0, 0), at(8, 1, 0), at(8, 2, 0), at(8, 2, 1)
	c, d, nicPort := at(8, 4, 0), at(8, 5, 0), at(0, 0, 0)
	place := func(root string, bridges ...topology.Address) topology.Place {
		return topology.Place{RootComplex: root, Bridges: bridges, NUMA: numa}
	}
	return topology.Assemble([]*topology.Device{
		{Address: root, Class: port}, {Address: up, Class: port}, {Address: a, Class: port},
		{Address: b, Class: port}, {Address: c, Class: port}, {Address: d, Class: port},
		{Address: at(8, 3, 0), Class: 0x020700, Vendor: 0x15b3, Product: 0x2100, V3: "a"},
		{Address: at(8, 6, 0), Class: 0x030200, Vendor: 0x10de, Product: 0x2941},
		{Address: nicPort, Class: port},
		{Address: at(0, 3, 0), Class: 0x020700, Vendor: 0x15b3, Product: 0x1023, V3: "a"},
	}, []topology.Place{
		place("pci0008:00"), place("pci0008:00", root), place("pci0008:00", root, up),
		place("pci0008:00", root, up), place("pci0008:00", root, up, b), place("pci0008:00", root, up, b, c),
		place("pci0008:00", root, up, a), place("pci0008:00", root, up, b, c, d),
		place("pci0000:00"), place("pci0000:00", nicPort),
	}, []int{0, 1})
}

func c2cTree() *topology.Tree {
	numa := topology.Node(0)
	return topology.Assemble([]*topology.Device{
		{Address: at(8, 0, 0), Class: topology.PortClass, Vendor: 0x10de, Product: 0x22b1},
		{Address: at(8, 6, 0), Class: 0x030200, Vendor: 0x10de, Product: 0x2941},
		{Address: at(0, 3, 0), Class: 0x020700, Vendor: 0x15b3, Product: 0x1023},
	}, []topology.Place{
		{RootComplex: "pci0008:00", NUMA: numa},
		{RootComplex: "pci0008:00", Bridges: []topology.Address{at(8, 0, 0)}, NUMA: numa},
		{RootComplex: "pci0000:00", Bridges: []topology.Address{at(0, 0, 0)}, NUMA: numa},
	}, []int{0, 1})
}
