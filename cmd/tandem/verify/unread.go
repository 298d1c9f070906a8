// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"

	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/topology"
)

// trust returns the tree with the NICs of a pairs file below the DMA functions of their GPUs, as far as this
// process cannot read the assignment. The daemon, which reads the vpd files as root, wrote the file.
func (r *Verification) trust(tree *topology.Tree, told pairs.File) *topology.Tree {
	moved := map[topology.Address]topology.Place{}
	for _, pair := range told.Pairs {
		if pair.GPU == nil || pair.Distance != topology.PIX.String() && pair.Distance != topology.PXB.String() {
			continue
		}
		function, is := tree.UnreadFunction(pair.GPU.Address, pair.VF.Address)
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
