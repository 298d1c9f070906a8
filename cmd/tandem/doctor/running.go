// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
)

// RunningVFs are the VFs that the running tandem-rdma offers, each once.
func RunningVFs(ctx context.Context, runDir string, tree *topology.Tree) ([]Device, error) {
	none := errors.New("no tandem-rdma is running")
	if _, err := os.Lstat(coordination.SocketPath(runDir)); errors.Is(err, fs.ErrNotExist) {
		return nil, none // there is nobody to wait for
	}
	answer, err := coordinator.AskStatus(ctx, runDir)
	if err != nil {
		return nil, err
	}
	var vfs []Device
	err = none
	known := map[string]bool{}
	for _, r := range answer.GetResources() {
		if r.GetKind() != string(device.VF) || !r.GetConnected() {
			continue
		}
		err = nil
		for _, d := range r.GetDevices() {
			device, there := runningDevice(d.GetDevice(), tree)
			if there && !known[device.ID] {
				vfs = append(vfs, device)
			}
			known[device.ID] = true
		}
	}
	return vfs, err
}

// runningDevice is a device as its plugin announces it; false where the machine does not have it any more.
func runningDevice(d *api.Device, tree *topology.Tree) (device Device, there bool) {
	address, err := topology.ParseAddress(d.GetAddress())
	if err != nil {
		return device, false
	}
	device.ID, device.Address = d.GetId(), address
	if d.Numa != nil {
		device.NUMA = topology.Node(int(d.GetNuma()))
	}
	_, there = tree.Device(address)
	return device, there
}
