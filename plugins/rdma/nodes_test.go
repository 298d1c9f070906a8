// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"testing"
	"testing/fstest"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/test/machines"
)

// Every VF of every machine gives its own three RDMA nodes and the shared one.
func TestNodesOfRecordedMachines(t *testing.T) {
	var selector pools.Selector
	selector.IsRDMA = true
	for _, name := range machines.Names() {
		t.Run(name, func(t *testing.T) {
			sys, tree := machines.Read(t, name, 2)
			host := Host{
				Sys: sys, Dev: fstest.MapFS{"infiniband/rdma_cm": &fstest.MapFile{}}, DevinfoDir: t.TempDir(),
			}
			seen := map[string]bool{}
			for d := range tree.Devices() {
				if !d.IsVF() || d.Driver == "" || len(d.RDMA) == 0 {
					continue
				}
				id := d.Address.String()
				g := host.Grant(pools.Device{ID: id, Address: d.Address, Selector: &selector}, &pools.ResourceConfig{})
				info := g.Info["rdma"]
				if info["uverbs"] == "" || info["rdma_cm"] == "" || info["rdma_dev"] == "" || seen[info["uverbs"]] {
					t.Errorf("%s: %v", id, info)
				}
				seen[info["uverbs"]] = true
			}
		})
	}
}
