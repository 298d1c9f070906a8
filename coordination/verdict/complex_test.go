// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/test/published"
	"github.com/tandem-k8s/tandem/topology"
)

// TestDMAFunctionOnAnotherNode: the NUMA node of a switch is that of the place, in any order of devices.
func TestDMAFunctionOnAnotherNode(t *testing.T) {
	t.Parallel()
	root, up, toNIC, toGPU := at(8, 0, 0), at(8, 1, 0), at(8, 2, 0), at(8, 2, 1)
	function, gpu, nicPort, nic := at(8, 3, 0), at(8, 4, 0), at(0, 0, 0), at(0, 3, 0)
	there := func(bridges ...topology.Address) topology.Place {
		return topology.Place{RootComplex: "pci0008:00", Bridges: bridges, NUMA: topology.Node(1)}
	}
	port := topology.PortClass
	tree := topology.Assemble([]*topology.Device{
		{Address: root, Class: port}, {Address: up, Class: port}, {Address: toNIC, Class: port},
		{Address: toGPU, Class: port}, {Address: nicPort, Class: port},
		{Address: function, Class: 0x020700, Vendor: 0x15b3, Product: 0x2100, V3: "a"},
		{Address: gpu, Class: 0x030200, Vendor: 0x10de, Product: 0x2941},
		{Address: nic, Class: 0x020700, Vendor: 0x15b3, Product: 0x1023, V3: "a"},
	}, []topology.Place{
		there(), there(root), there(root, up), there(root, up),
		{RootComplex: "pci0000:00", NUMA: topology.Node(0)}, there(root, up, toNIC), there(root, up, toGPU),
		{RootComplex: "pci0000:00", Bridges: []topology.Address{nicPort}, NUMA: topology.Node(0)},
	}, []int{0, 1})
	devices := []device.Device{{ID: "a", Address: nic}, {ID: "b", Address: gpu}}
	for range 2 {
		switches := switchesOf(tree,
			published.Resource{Name: "first", Devices: devices[:1]},
			published.Resource{Name: "second", Devices: devices[1:]})
		if len(switches) != 1 || switches[0].NUMA == nil || *switches[0].NUMA != 1 {
			t.Errorf("switches of %v: %+v, want one on NUMA node 1", devices, switches)
		}
		slices.Reverse(devices)
	}
}

func at(domain uint32, bus, device uint8) topology.Address {
	return topology.Address{Domain: domain, Bus: bus, Device: device}
}
