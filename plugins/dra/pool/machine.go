// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
)

// addGPUs adds the GPUs of all resources.
func (b *machineBuilder) addGPUs() {
	seen := map[string]bool{}
	parts := map[topology.Address]int{}
	hives := hives(b.Links)
	for _, resource := range slices.Sorted(maps.Keys(b.GPUs)) {
		for _, d := range b.GPUs[resource] {
			id, replica := topology.CutReplica(d.ID)
			if replica {
				const once = "%s: its GPUs are handed out once each: a claim does not share a GPU by time"
				b.note(fmt.Sprintf(once, resource))
			}
			if d.Gone || seen[id] {
				continue
			}
			function, ok := b.Tree.Device(d.Card)
			if !ok {
				b.note(fmt.Sprintf("GPU %s is left out: sysfs has no PCI function %s", id, d.Card))
				continue
			}
			seen[id] = true
			parts[d.Card]++
			d.ID = id
			b.gpus = append(b.gpus, GPU{
				Device: d, Resource: resource, Vendor: gpu.Vendor(function), Model: gpu.Model(function),
				Switch: b.Tree.Switch(d.Card), Hive: hives[d.Card],
			})
		}
	}
	for i := range b.gpus {
		b.gpus[i].Parts = parts[b.gpus[i].Card]
	}
	slices.SortFunc(b.gpus, compareGPUs)
}

// compareGPUs orders the partitions of a card by number.
func compareGPUs(a, b GPU) int {
	return cmp.Or(a.Card.Compare(b.Card), cmp.Compare(len(a.Part), len(b.Part)), cmp.Compare(a.Part, b.Part),
		cmp.Compare(a.ID, b.ID))
}

// hives returns for every card with links the lowest card that is reachable over links.
func hives(links []topology.Link) map[topology.Address]string {
	lowest := map[topology.Address]topology.Address{}
	root := func(a topology.Address) topology.Address {
		for lowest[a] != a {
			a = lowest[a]
		}
		return a
	}
	for _, link := range links {
		for _, card := range []topology.Address{link.A, link.B} {
			if _, ok := lowest[card]; !ok {
				lowest[card] = card
			}
		}
		a, b := root(link.A), root(link.B)
		if a.Compare(b) > 0 {
			a, b = b, a
		}
		lowest[b] = a
	}
	names := make(map[topology.Address]string, len(lowest))
	for card := range lowest {
		names[card] = root(card).String()
	}
	return names
}

// addVFs adds the devices of all pools. A device of several pools belongs to the first one.
func (b *machineBuilder) addVFs() {
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

func (b *machineBuilder) addVF(pool string, d pools.Device, owner map[string]string) {
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
	if names := pools.RDMADevices(b.Sys, d.Address, d.Aux); len(names) > 0 {
		v.RDMA = names[0]
	}
	b.vfs = append(b.vfs, v)
}

// index returns the index of a VF among the VFs of its PF.
func (b *machineBuilder) index(function *topology.Device) int {
	pf, ok := b.Tree.Device(function.PF)
	if !function.IsVF() || !ok {
		return 0
	}
	return max(slices.Index(pf.VFs, function.Address), 0)
}
