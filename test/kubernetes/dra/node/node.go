// SPDX-License-Identifier: Apache-2.0

// Package node makes recorded machines to what the DRA driver knows of a node.
package node

import (
	"fmt"

	"github.com/tandem-k8s/tandem/dra/inventory"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// Read is a recorded machine with so many VFs on each PF (see machines.Load), all of which are handed
// out: a PF without VFs is handed out itself.
func Read(name string, vfsPerPF int) (inventory.Machine, error) {
	recorded, err := machines.Load(name, vfsPerPF)
	if err != nil {
		return inventory.Machine{}, err
	}
	tree, err := topology.Read(recorded.FS())
	if err != nil {
		return inventory.Machine{}, fmt.Errorf("read machine %s: %w", name, err)
	}
	return inventory.Read(recorded.FS(), tree, nil)
}
