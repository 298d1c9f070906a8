// SPDX-License-Identifier: Apache-2.0

package object

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/tandem-k8s/tandem/coordination/publish/facts"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/topology"
)

// addFunctions adds the physical functions of a resource's devices.
func addFunctions(published *v1alpha1.Resource, tree *topology.Tree, r facts.Resource) {
	functions := map[topology.Address][]int{}
	last := map[topology.Address]bool{} // by the health of a device
	for number, d := range r.Devices {
		function := d.Address
		if found, ok := tree.Device(function); ok {
			function = found.Function()
		}
		functions[function] = append(functions[function], number)
		last[function] = last[function] || d.Degraded
	}
	var degraded []int
	for i, function := range slices.SortedFunc(maps.Keys(functions), topology.Address.Compare) {
		published.Functions = append(published.Functions, v1alpha1.SetOf(functions[function]...))
		published.Addresses = append(published.Addresses, function.String())
		d, ok := tree.Device(function)
		if last[function] || ok && d.PCIe.DegradedOf(published.Kind == v1alpha1.GPU) {
			degraded = append(degraded, i)
		}
	}
	published.Degraded = v1alpha1.SetOf(degraded...)
	if len(functions) == len(r.Devices) {
		published.Functions = nil
	}
}

// places returns all devices with their addresses.
func places(resources []facts.Resource) []v1alpha1.Placed {
	var all []v1alpha1.Placed
	for _, r := range resources {
		for number, d := range r.Devices {
			all = append(all, v1alpha1.Placed{Resource: r.Name, Number: number, Address: d.Address})
		}
	}
	return all
}

// linkOf has the compared fields of a link.
type linkOf struct {
	kind        topology.LinkType
	hops, count int
}

// links returns the links between GPUs, or nil if all are equal. A card with several devices is named by its
// first one.
func links(resources []facts.Resource) []v1alpha1.Link {
	refs := map[topology.Address]v1alpha1.GPURef{}
	for _, r := range resources {
		if r.Kind != "gpu" {
			continue
		}
		for number, d := range r.Devices {
			if refs[d.Address] == "" {
				refs[d.Address] = v1alpha1.GPURef(r.Name + "/" + strconv.Itoa(number))
			}
		}
	}
	published, kinds := map[[2]topology.Address]v1alpha1.Link{}, map[linkOf]bool{}
	for _, r := range resources {
		for _, l := range r.Links {
			a, b := l.A, l.B
			if a.Compare(b) > 0 {
				a, b = b, a
			}
			if refs[a] == "" || refs[b] == "" || a == b {
				continue
			}
			published[[2]topology.Address{a, b}] = v1alpha1.Link{
				A: refs[a], B: refs[b], Type: string(l.Type), Hops: l.Hops, Count: l.Count,
			}
			kinds[linkOf{l.Type, l.Hops, l.Count}] = true
		}
	}
	if len(kinds) <= 1 && len(published) == len(refs)*(len(refs)-1)/2 {
		return nil
	}
	var all []v1alpha1.Link
	for _, ends := range slices.SortedFunc(maps.Keys(published), func(p, q [2]topology.Address) int {
		return cmp.Or(p[0].Compare(q[0]), p[1].Compare(q[1]))
	}) {
		all = append(all, published[ends])
	}
	return all
}
