// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/topology"
)

// unread returns the DMA function beside a GPU if a VF may belong to the function and this process cannot
// read it: keyword V3 in the vpd files assigns PFs to DMA functions, and only root reads these files.
func unread(tree *topology.Tree, gpu, vf topology.Address) (topology.Address, bool) {
	if !tree.MayBeNearer(gpu, vf) {
		return topology.Address{}, false
	}
	all := tree.Complexes()
	i := slices.IndexFunc(all, func(c topology.Complex) bool { return c.Unread && slices.Contains(c.GPUs, gpu) })
	return all[i].Function, true
}

// trust returns the tree with the NICs of a pairs file below the DMA functions of their GPUs, as far as this
// process cannot read the assignment. The daemon, which reads the vpd files as root, wrote the file.
func (r *Verification) trust(tree *topology.Tree, told pairs.File) *topology.Tree {
	moved := map[topology.Address]topology.Place{}
	for _, pair := range told.Pairs {
		if pair.GPU == nil || pair.Distance != topology.PIX.String() && pair.Distance != topology.PXB.String() {
			continue
		}
		function, is := unread(tree, pair.GPU.Address, pair.VF.Address)
		if !is {
			continue
		}
		d, _ := tree.Device(pair.VF.Address)
		moved[d.Function()], _ = tree.Place(function)
		r.Trusted = append(r.Trusted, fmt.Sprintf("GPU %s, VF %s: %s", pair.GPU.Address, pair.VF.Address,
			pair.Distance))
	}
	if len(moved) == 0 {
		return tree
	}
	return tree.Move(moved)
}
