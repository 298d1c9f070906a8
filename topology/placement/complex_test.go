// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"testing"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// grace has two GPUs on root ports of Grace and two ConnectX NICs on each of two NUMA nodes.
func grace() (tree *topology.Tree, gpus, nics []placement.Device) {
	var functions []*topology.Device
	var places []topology.Place
	add := func(d topology.Device, at topology.Place) placement.Device {
		functions, places = append(functions, &d), append(places, at)
		return placement.Device{ID: d.Address.String(), Address: d.Address}
	}
	for node := range 2 {
		for i := range 4 {
			port := topology.Address{Domain: uint32(0x10*node + i)}
			root := topology.Place{RootComplex: "pci" + port.String()[:7], NUMA: topology.Node(node)}
			add(topology.Device{Address: port, Class: topology.PortClass, Vendor: 0x10de, Product: 0x22b1}, root)
			below, card := root, port
			below.Bridges, card.Bus = []topology.Address{port}, 1
			if i < 2 {
				gpus = append(gpus, add(topology.Device{
					Address: card, Class: 0x030200, Vendor: 0x10de, Product: 0x2941,
				}, below))
			} else {
				nics = append(nics, add(topology.Device{
					Address: card, Class: 0x020000, Vendor: 0x15b3, Product: 0x1023,
				}, below))
			}
		}
	}
	return topology.Assemble(functions, places, []int{0, 1}), gpus, nics
}

func TestC2C(t *testing.T) {
	t.Parallel()
	tree, gpus, nics := grace()
	for name, c := range map[string]struct {
		gpus, vfs int
		free      []placement.Device // NICs
		want      string
	}{
		"one pair":                 {1, 1, nics, "1 pair: 1 C2C; VFs on 1 PF; 3 same-switch pairs left"},
		"a NIC of the other node":  {1, 1, nics[3:], "1 pair: 1 C2C; VFs on 1 PF; 0 same-switch pairs left"},
		"the pairs of a node":      {2, 2, nics[1:], "2 pairs: 2 C2C; VFs on 2 PFs; 1 same-switch pair left"},
		"all pairs of both nodes":  {4, 4, nics, "4 pairs: 4 C2C; VFs on 4 PFs; 0 same-switch pairs left"},
		"a GPU without a near NIC": {3, 3, nics[1:], "3 pairs: 3 C2C; VFs on 3 PFs; 0 same-switch pairs left"},
		"a NIC on each node":       {2, 2, nics[1:3], "2 pairs: 2 C2C; VFs on 2 PFs; 0 same-switch pairs left"},
	} {
		got, err := placement.Choose(tree, placement.Request{
			GPUs: []placement.Half{{Count: c.gpus, Free: gpus}}, VFs: []placement.Half{{Count: c.vfs, Free: c.free}},
		})
		if err != nil || got.Reason != c.want {
			t.Errorf("%s: %q, %v, want %q", name, got.Reason, err, c.want)
		}
	}
}
