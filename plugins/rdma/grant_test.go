// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"testing"
	"testing/fstest"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/topology"
)

// virtual says of all functions that they are bound to vfio-pci.
type virtual struct{ pools.SRIOV }

func (virtual) VFIO(topology.Address) bool { return true }

// What a live node is asked by decides, where the host has that, and else the files.
func TestHostIsAsked(t *testing.T) {
	s := functions.New()
	s.PF(0x81, "ens1", 1, nil)
	vf, err := topology.ParseAddress("0000:81:00.1")
	if err != nil {
		t.Fatal(err)
	}
	for _, asked := range []pools.SRIOV{nil, virtual{}} {
		host := Host{Sys: s.FS(), SRIOV: asked, Dev: fstest.MapFS{}}
		g := host.Grant(pools.Device{ID: vf.String(), Address: vf}, &pools.ResourceConfig{})
		if _, vfio := g.Info["vfio"]; vfio != (asked != nil) {
			t.Errorf("asked by %T: %v", asked, g.Info)
		}
	}
}
