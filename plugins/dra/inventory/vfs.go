// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/plugins/rdma/sysfs"
	"github.com/tandem-k8s/tandem/topology"
)

// addVFs adds the devices of all pools. A device of several pools belongs to the first one.
func (b *builder) addVFs() {
	owner := map[string]string{} // pool by device ID
	for _, pool := range b.Pools {
		if pool.Resource != nil && pool.Resource.DeviceType == pools.Accelerator {
			b.note(fmt.Sprintf("%s is left out: its accelerators are offered as GPUs", pool.Name))
			continue
		}
		for _, d := range pool.Devices {
			b.addVF(pool.Name, d, owner)
		}
	}
	slices.SortFunc(b.vfs, func(v, w VF) int { return v.Compare(w.Device) })
}

func (b *builder) addVF(pool string, d pools.Device, owner map[string]string) {
	id, replica := topology.CutReplica(d.ID)
	if replica {
		b.note(fmt.Sprintf("%s: its HCAs are handed out once each: a claim does not share an HCA", pool))
	}
	if d.Missing() {
		return
	}
	if first, known := owner[id]; known {
		if first != pool {
			b.note(fmt.Sprintf("%s: %s belongs to %s: a device has one resource", pool, id, first))
		}
		return
	}
	owner[id] = pool
	function, ok := b.Tree.Device(d.Address)
	if !ok {
		b.note(fmt.Sprintf("%s: %s is left out: sysfs has no PCI function %s", pool, id, d.Address))
		return
	}
	d.ID, d.HCA = id, ""
	v := VF{Device: d, Pool: pool, Switch: b.Tree.Switch(d.Address), Index: b.index(function)}
	if d.Aux == "" && len(function.Netdevs) > 0 {
		v.Netdev = function.Netdevs[0]
	}
	if names := sysfs.RDMADevices(b.Sys, d.Address, d.Aux); len(names) > 0 {
		v.RDMA = names[0]
	}
	b.vfs = append(b.vfs, v)
}

// index returns the index of a VF among the VFs of its PF.
func (b *builder) index(function *topology.Device) int {
	pf, ok := b.Tree.Device(function.PF)
	if !function.IsVF() || !ok {
		return 0
	}
	return max(slices.Index(pf.VFs, function.Address), 0)
}
