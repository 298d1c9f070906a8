package inventory

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
)

// DefaultPool is the resource name of VFs where no configuration names one.
const DefaultPool = "tandem.dev/rdma_vf"

// Read is a machine as sysfs alone shows it, for recorded machines: NVIDIA's GPUs are whole, without links,
// and have their address as ID, for NVML alone knows better. Without pools the VFs are those of all NICs with
// RDMA, in [DefaultPool].
func Read(sys fs.FS, tree *topology.Tree, offered []pools.Pool) (Machine, error) {
	s := Sources{Sys: sys, Tree: tree, GPUs: map[string][]gpu.Device{}, Pools: offered}
	var notes []string
	switch found, err := readAMD(sys); {
	case err == nil:
		s.GPUs, notes = found.Resources, found.Notes
	case !errors.Is(err, amd.ErrNoDriver):
		return Machine{}, err
	}
	links, err := amd.ReadLinks(sys)
	if err != nil {
		return Machine{}, fmt.Errorf("read links of GPUs: %w", err)
	}
	s.Links = links
	addUnread(s.GPUs, tree)
	if offered == nil {
		s.Pools = []pools.Pool{{Name: DefaultPool, Devices: allRDMA(tree)}}
	}
	machine := New(s)
	machine.Notes = append(machine.Notes, notes...)
	return machine, nil
}

// readAMD reads AMD's GPUs under one resource name where they go under one, as they do unless told otherwise.
func readAMD(sys fs.FS) (gpu.Inventory, error) {
	found, err := readNamed(sys, amd.Single)
	if err != nil && !errors.Is(err, amd.ErrNoDriver) {
		return readNamed(sys, amd.Mixed)
	}
	return found, err
}

func readNamed(sys fs.FS, naming amd.Naming) (gpu.Inventory, error) {
	backend, err := amd.New(sys, naming)
	if err != nil {
		return gpu.Inventory{}, err
	}
	return backend.Discover()
}

// addUnread adds the GPUs that no driver told of, as whole GPUs.
func addUnread(found map[string][]gpu.Device, tree *topology.Tree) {
	known := map[topology.Address]bool{}
	for _, devices := range found {
		for _, d := range devices {
			known[d.Card] = true
		}
	}
	for d := range tree.Devices() {
		vendor := gpu.Vendor(d)
		if vendor == "" || known[d.Address] {
			continue
		}
		resource := vendor + ".com/gpu"
		found[resource] = append(found[resource],
			gpu.Device{ID: d.Address.String(), Card: d.Address, NUMA: d.NUMA, Healthy: true})
	}
}

// allRDMA are the VFs of all NICs with RDMA, and the NICs that have none.
func allRDMA(tree *topology.Tree) []pools.Device {
	var list []pools.Device
	for nic := range tree.Devices() {
		if !nic.Class.IsNetwork() || nic.IsVF() || len(nic.RDMA) == 0 {
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
