package main

import (
	"fmt"
	"strings"

	"github.com/tandem-k8s/tandem/plugins/rdma"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// gpuDevices are the GPUs as a plugin offers them: partitions where amdgpu knows of some, whole functions otherwise.
func (n *node) gpuDevices() devices {
	var list devices
	for _, d := range n.gpus {
		parts := n.parts[d.Address]
		for _, part := range parts {
			list = append(list, device{Device: placement.Device{ID: part.ID, Address: part.Card}, numa: part.NUMA})
		}
		if len(parts) == 0 {
			list = append(list, newDevice(d))
		}
	}
	return list
}

func newDevice(d *topology.Device) device {
	return device{Device: placement.Device{ID: d.Address.String(), Address: d.Address}, numa: d.NUMA}
}

// vfDevices are the VFs that the configuration selects or, without one, those of all NICs with RDMA.
func (q *question) vfDevices(n *node, from *source) (devices, []string, error) {
	if q.config != "" {
		return q.selected(n, from)
	}
	var list devices
	for _, pf := range n.rdmaNICs() {
		for _, address := range pf.VFs {
			if vf, ok := n.tree.Device(address); ok {
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
func (q *question) selected(n *node, from *source) (devices, []string, error) {
	config, err := pools.ReadConfig(q.config)
	if err != nil {
		return nil, nil, err
	}
	finder := pools.Finder{Sys: n.sys, Prefix: "intel.com"}
	if from.live() {
		finder.Reserved, finder.DDP = rdma.DefaultRoutes(from.sysfsRoot), rdma.DDPProfiles(from.sysfsRoot)
	}
	pools, warnings, err := finder.Find(config)
	if err != nil {
		return nil, nil, err
	}
	var list devices
	for _, pool := range pools {
		for _, d := range pool.Devices {
			list = append(list, device{Device: placement.Device{ID: d.ID, Address: d.Address}, numa: d.NUMA})
		}
	}
	return list, append(config.Warnings, warnings...), nil
}

// mark marks the used devices. Addresses may be written in any way that the kernel's address can be.
func (q *question) mark(gpus, vfs devices) error {
	byID := map[string]*device{}
	for _, list := range []devices{gpus, vfs} {
		for i := range list {
			byID[list[i].ID] = &list[i]
		}
	}
	for _, id := range q.used {
		d, ok := byID[canonical(strings.TrimSpace(id))]
		if !ok {
			return fmt.Errorf("mark %q as used: it is none of the GPUs and VFs to choose from", id)
		}
		d.used = true
	}
	return nil
}

// canonical writes an address as the kernel does; lspci leaves the domain out where there is only one. What is no address stays.
func canonical(id string) string {
	for _, domain := range []string{"", "0000:"} {
		if a, err := topology.ParseAddress(domain + id); err == nil {
			return a.String()
		}
	}
	return id
}
