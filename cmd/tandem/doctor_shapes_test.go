// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"

	"github.com/tandem-k8s/tandem/coordination/api"
)

// offering answers as a tandem-rdma with these VFs.
type offering struct {
	plugins
	vfs  []*api.DeviceStatus
	away bool
}

func (o offering) Status(context.Context, *api.StatusRequest) (*api.StatusResponse, error) {
	return &api.StatusResponse{Resources: []*api.Resource{
		{Name: "amd.com/gpu", Kind: "gpu", Connected: true},
		{Name: "tandem.dev/rdma_vf", Kind: "vf", Connected: !o.away, Devices: o.vfs},
		{Name: "tandem.dev/again", Kind: "vf", Connected: !o.away, Devices: o.vfs},
	}}, nil
}

// offer runs a tandem-rdma with all VFs of the machine, by default without NUMA nodes.
func (s *sick) offer(node func(bus string) *uint32, away bool) {
	s.t.Helper()
	functions, err := filepath.Glob(s.path("sys/bus/pci/devices/*/physfn"))
	s.check(err)
	gone := &api.Device{Id: "0000:0c:00.7", Address: "0000:0c:00.7", Healthy: true}
	o := offering{away: away, vfs: []*api.DeviceStatus{{Device: gone}}}
	for _, function := range functions {
		address := filepath.Base(filepath.Dir(function))
		o.vfs = append(o.vfs, &api.DeviceStatus{
			Device: &api.Device{Id: address, Address: address, Healthy: true, Numa: node(address[5:7])},
		})
	}
	s.with("--config", "")
	s.serve(o, nil)
}

func noNode(string) *uint32 { return nil }

// socket returns the NUMA node on the machine of the shape tests.
func socket(bus string) *uint32 {
	node := uint32(0)
	if bus >= "80" {
		node = 1
	}
	return &node
}
