package main

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/topology"
)

// read takes the machine over, with what is offered there.
func (x *examiner) read(ctx context.Context) error {
	n, err := x.readMachine()
	if err != nil {
		return err
	}
	if x.node.VFs, x.node.Guess, err = x.readVFs(ctx, n); err != nil {
		return err
	}
	x.node.GPUs = offered(n.gpuDevices())
	return nil
}

// readMachine takes the machine over from sysfs.
func (x *examiner) readMachine() (*node, error) {
	n, err := readNode(&x.from)
	if err != nil {
		return nil, err
	}
	x.node.Sys, x.node.Tree, x.node.Links = os.DirFS(x.from.sysfsRoot), n.tree, n.links
	return n, nil
}

// readVFs are the VFs that the configuration selects, or those that the running tandem-rdma offers, or those of all NICs with RDMA: a guess, and
// why it is one.
func (x *examiner) readVFs(ctx context.Context, n *node) (vfs []doctor.Device, guess string, err error) {
	if x.config == "" {
		vfs, err := runningVFs(ctx, x.node.RunDir, n.tree)
		if err == nil {
			return vfs, "", nil
		}
		guess = "no --config, and " + err.Error()
	}
	q := question{config: x.config}
	selected, _, err := q.vfDevices(n, &x.from)
	return offered(selected), guess, err
}

// runningVFs are the VFs that the running tandem-rdma offers, each once.
func runningVFs(ctx context.Context, runDir string, tree *topology.Tree) ([]doctor.Device, error) {
	none := errors.New("no tandem-rdma is running")
	if _, err := os.Lstat(coordination.SocketPath(runDir)); errors.Is(err, fs.ErrNotExist) {
		return nil, none // there is nobody to wait for
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	answer, err := coordination.Status(ctx, runDir)
	if err != nil {
		return nil, err
	}
	var vfs []doctor.Device
	err = none
	known := map[string]bool{}
	for _, r := range answer.GetResources() {
		if r.GetKind() != string(coordination.VF) || !r.GetConnected() {
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
func runningDevice(d *api.Device, tree *topology.Tree) (device doctor.Device, there bool) {
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

func offered(list devices) []doctor.Device {
	var all []doctor.Device
	for _, d := range list {
		all = append(all, doctor.Device{Device: d.Device, NUMA: d.numa})
	}
	return all
}
