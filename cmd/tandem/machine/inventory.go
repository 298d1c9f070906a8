// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// Inventory returns the machine as the DRA driver sees it, with the VFs of a config.json, or of all NICs with
// RDMA if config is "".
func (n *Node) Inventory(config string, from *Source) (pool.Machine, error) {
	var offered []pools.Pool
	var notes []string
	if config != "" {
		var err error
		if offered, notes, err = n.pools(config, from); err != nil {
			return pool.Machine{}, err
		}
	}
	found, err := pool.ReadMachine(n.Sys, n.Tree, offered)
	if err != nil {
		return pool.Machine{}, err
	}
	for i := range found.GPUs {
		if gpu := &found.GPUs[i]; gpu.VRAM == 0 {
			gpu.VRAM = n.vram[gpu.Card]
		}
	}
	found.Notes = append(found.Notes, notes...)
	return found, nil
}
