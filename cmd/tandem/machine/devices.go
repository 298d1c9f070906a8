// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"

	"github.com/tandem-k8s/tandem/cmd/tandem/offer"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
)

// GPUDevices returns the GPUs as a plugin offers them: partitions if amdgpu reports some, else whole
// functions.
func (n *Node) GPUDevices() []offer.Device {
	var list []offer.Device
	for _, d := range n.GPUs {
		parts := n.Parts[d.Address]
		for _, part := range parts {
			list = append(list, offer.New(part.ID, part.Card, part.NUMA))
		}
		if len(parts) == 0 {
			list = append(list, newDevice(d))
		}
	}
	return list
}

func newDevice(d *topology.Device) offer.Device {
	return offer.New(d.Address.String(), d.Address, d.NUMA)
}

// VFDevices returns the VFs of a config.json, or of all NICs with RDMA if config is "". The strings are
// notes.
func (n *Node) VFDevices(config string, from *Source) ([]offer.Device, []string, error) {
	if config != "" {
		return n.selected(config, from)
	}
	var list []offer.Device
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

// selected returns the devices of all pools of the configuration, without duplicates.
func (n *Node) selected(file string, from *Source) ([]offer.Device, []string, error) {
	found, notes, err := n.pools(file, from)
	if err != nil {
		return nil, nil, err
	}
	var list []offer.Device
	for _, pool := range found {
		for _, d := range pool.Devices {
			vf := offer.New(d.ID, d.Address, d.NUMA)
			vf.Resource = pool.Name
			list = append(list, vf)
		}
	}
	return list, notes, nil
}

// pools returns the pools of the configuration. The strings are notes.
func (n *Node) pools(file string, from *Source) ([]pools.Pool, []string, error) {
	config, err := pools.ReadConfig(file)
	if err != nil {
		return nil, nil, err
	}
	found, warnings, err := n.finder(from).Find(config)
	if err != nil {
		return nil, nil, err
	}
	notes := append(config.Warnings, warnings...)
	for _, pool := range found {
		if pool.Decision != "" {
			notes = append(notes, fmt.Sprintf("resource %q: %s", pool.Resource.Name, pool.Decision))
		}
	}
	return found, notes, nil
}

func (n *Node) finder(from *Source) pools.Finder {
	finder := pools.Finder{Sys: n.Sys, Prefix: "intel.com"}
	if from.Live() {
		askKernel(&finder, from.SysfsRoot)
	}
	return finder
}

// Choices returns the decision of a config.json's selectors for each of the machine's devices.
func (n *Node) Choices(file string, from *Source) ([]pools.Choice, error) {
	config, err := pools.ReadConfig(file)
	if err != nil {
		return nil, err
	}
	return n.finder(from).Explain(config)
}
