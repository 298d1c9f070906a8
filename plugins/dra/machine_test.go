// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// watchedPorts is a configuration with all VFs as one resource, unhealthy while their RDMA port is inactive.
const watchedPorts = `{"resourceList": [{"resourceName": "rdma_vf", "selectors": {"isRdma": true},
	"checkHealthOnRdmaPort": true}]}`

// readPools reads the configuration of the VFs.
func (n *node) readPools() *pools.Config {
	n.t.Helper()
	if n.pools == "" {
		return pools.Default()
	}
	n.write(n.path("config.json"), n.pools)
	config, err := pools.ReadConfig(n.path("config.json"))
	if err != nil {
		n.t.Fatal(err)
	}
	return config
}

// newWatchedNode returns a node with a sysfs on disk, and VFs that are unhealthy while their port is
// inactive.
func newWatchedNode(t testing.TB, vfsPerPF int) *node {
	t.Helper()
	n := newNode(t, machine, vfsPerPF)
	n.pools = watchedPorts
	if err := os.CopyFS(n.path("sys"), n.sys); err != nil {
		t.Fatal(err)
	}
	n.sys = os.DirFS(n.path("sys"))
	return n
}

// breakPort makes the RDMA port of a VF inactive.
func (n *node) breakPort(vf string) {
	n.t.Helper()
	devices, err := filepath.Glob(n.path("sys/bus/pci/devices/" + vf + "/infiniband/*"))
	if err != nil || len(devices) != 1 {
		n.t.Fatalf("RDMA devices of %s: %v, %v", vf, devices, err)
	}
	n.write(filepath.Join(devices[0], "ports/1/state"), "1: DOWN\n")
}

// awaitUnhealthy waits until the driver reports devices as unhealthy in its status.
func (n *node) awaitUnhealthy(t *testing.T, ids ...string) {
	t.Helper()
	await(t, "the status shows unhealthy devices", func() bool {
		seen := 0
		for _, r := range n.status(t).GetResources() {
			for _, d := range r.GetDevices() {
				if contains(ids, d.GetDevice().GetId()) && !d.GetDevice().GetHealthy() {
					seen++
				}
			}
		}
		return seen == len(ids)
	})
}
