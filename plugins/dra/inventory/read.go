// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"io/fs"
	"maps"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/sysfs"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
)

// DefaultPool is the resource name of VFs without a configuration.
const DefaultPool = "tandem.dev/rdma_vf"

// Read returns the inventory of a machine from sysfs only, for recorded machines: NVIDIA GPUs are whole and
// without links, with their address as ID, because only NVML has more data. Without pools it includes the VFs
// of all NICs with RDMA, in [DefaultPool].
func Read(sys fs.FS, tree *topology.Tree, offered []pools.Pool) (Machine, error) {
	s := Sources{Sys: sys, Tree: tree, GPUs: map[string][]gpu.Device{}, Pools: offered}
	var notes []string
	for _, reader := range sysfs.Readers {
		switch found, err := read(sys, reader); {
		case err == nil:
			maps.Copy(s.GPUs, found.Resources)
			notes = append(notes, found.Notes...)
		case !gpu.IsNoDriver(err):
			return Machine{}, err
		}
		links, err := reader.Links(sys)
		if err != nil {
			return Machine{}, fmt.Errorf("read links of GPUs: %w", err)
		}
		s.Links = append(s.Links, links...)
	}
	addUnread(s.GPUs, tree)
	if offered == nil {
		s.Pools = []pools.Pool{{Name: DefaultPool, Devices: allRDMA(tree)}}
	}
	machine := New(s)
	machine.Notes = append(machine.Notes, notes...)
	return machine, nil
}

// read reads a vendor's GPUs under one resource name if possible, which is the default, else under one name
// per partitioning.
func read(sys fs.FS, from sysfs.Reader) (gpu.Inventory, error) {
	found, err := from.Single(sys)
	if err != nil && !gpu.IsNoDriver(err) {
		return from.Mixed(sys)
	}
	return found, err
}

// addUnread adds the GPUs without a driver, as whole GPUs.
func addUnread(found map[string][]gpu.Device, tree *topology.Tree) {
	known := map[topology.Address]bool{}
	for _, devices := range found {
		for _, d := range devices {
			known[d.Card] = true
		}
	}
	for d := range tree.Devices() {
		maker, ok := gpu.MakerOf(gpu.Vendor(d))
		if !ok || known[d.Address] {
			continue
		}
		found[maker.Resource] = append(found[maker.Resource],
			gpu.Device{ID: d.Address.String(), Card: d.Address, NUMA: d.NUMA, Healthy: true})
	}
}

// allRDMA returns the VFs of all NICs with RDMA, and NICs without VFs.
func allRDMA(tree *topology.Tree) []pools.Device {
	var list []pools.Device
	for nic := range tree.Devices() {
		if !nic.IsNIC() || nic.IsVF() || len(nic.RDMA) == 0 {
			continue
		}
		for _, address := range nic.VFs {
			if vf, ok := tree.Device(address); ok {
				list = append(list, newDevice(vf))
			}
		}
		if len(nic.VFs) == 0 {
			list = append(list, newDevice(nic))
		}
	}
	return list
}

func newDevice(d *topology.Device) pools.Device {
	return pools.Device{
		ID: d.Address.String(), Address: d.Address, PF: d.PF, NUMA: d.NUMA, Selector: new(pools.Selector),
	}
}
