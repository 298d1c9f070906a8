// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"testing"
	"testing/fstest"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/test/machines"
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

// TestShellName: a variable's name keeps all letters and digits that shells accept, the last of them too.
func TestShellName(t *testing.T) {
	const name, want = "PCIDEVICE_A-Z.0/9_@[:`", "PCIDEVICE_A_Z_0_9_____"
	if got := shellName(name); got != want {
		t.Errorf("%q is %q, want %q", name, got, want)
	}
}

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
