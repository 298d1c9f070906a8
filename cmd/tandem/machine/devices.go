package machine

import (
	"github.com/tandem-k8s/tandem/plugins/rdma"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Device is a GPU or VF as the kubelet would know it.
type Device struct {
	placement.Device
	NUMA topology.NUMANode
}

// GPUDevices are the GPUs as a plugin offers them: partitions where amdgpu knows of some, whole functions
// otherwise.
func (n *Node) GPUDevices() []Device {
	var list []Device
	for _, d := range n.GPUs {
		parts := n.Parts[d.Address]
		for _, part := range parts {
			list = append(list, Device{Device: placement.Device{ID: part.ID, Address: part.Card}, NUMA: part.NUMA})
		}
		if len(parts) == 0 {
			list = append(list, newDevice(d))
		}
	}
	return list
}

func newDevice(d *topology.Device) Device {
	return Device{Device: placement.Device{ID: d.Address.String(), Address: d.Address}, NUMA: d.NUMA}
}

// VFDevices are the VFs that a config.json selects or, without one (""), those of all NICs with RDMA. The
// strings are notes.
func (n *Node) VFDevices(config string, from *Source) ([]Device, []string, error) {
	if config != "" {
		return n.selected(config, from)
	}
	var list []Device
	for _, pf := range n.RDMANICs() {
		for _, address := range pf.VFs {
			if vf, ok := n.Tree.Device(address); ok {
				list = append(list, newDevice(vf))
			}
		}
		if len(pf.VFs) == 0 {
			list = append(list, newDevice(pf))
		}
	}
	return list, nil, nil
}

// selected are the devices of all pools of the configuration, each once.
func (n *Node) selected(file string, from *Source) ([]Device, []string, error) {
	config, err := pools.ReadConfig(file)
	if err != nil {
		return nil, nil, err
	}
	finder := pools.Finder{Sys: n.Sys, Prefix: "intel.com"}
	if from.Live() {
		finder.Reserved, finder.DDP = rdma.DefaultRoutes(from.SysfsRoot), rdma.DDPProfiles(from.SysfsRoot)
	}
	pools, warnings, err := finder.Find(config)
	if err != nil {
		return nil, nil, err
	}
	var list []Device
	for _, pool := range pools {
		for _, d := range pool.Devices {
			list = append(list, Device{Device: placement.Device{ID: d.ID, Address: d.Address}, NUMA: d.NUMA})
		}
	}
	return list, append(config.Warnings, warnings...), nil
}
