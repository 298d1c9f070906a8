// SPDX-License-Identifier: Apache-2.0

// Package node converts recorded machines to the DRA driver's inventory.
package node

import (
	"fmt"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// Read returns a recorded machine with vfsPerPF VFs on each PF (see machines.Load), all of which are offered;
// a PF without VFs is offered itself.
func Read(name string, vfsPerPF int) (pool.Machine, error) {
	recorded, err := machines.Load(name, vfsPerPF)
	if err != nil {
		return pool.Machine{}, err
	}
	tree, err := topology.Read(recorded.FS())
	if err != nil {
		return pool.Machine{}, fmt.Errorf("read machine %s: %w", name, err)
	}
	return pool.ReadMachine(recorded.FS(), tree, nil)
}
