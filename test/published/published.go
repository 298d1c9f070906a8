// SPDX-License-Identifier: Apache-2.0

// Package published converts recorded machines to the facts that their nodes would publish.
package published

import (
	"cmp"
	"context"
	"io/fs"
	"log/slog"
	"os"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// The names of the resources.
const (
	GPUs = "amd.com/gpu"
	VFs  = "tandem.dev/rdma_vf"
)

// The vendors of GPUs: a BMC has a display controller too.
var vendors = []uint16{0x1002, 0x10de}

// Facts returns the facts of a recorded machine with vfsPerPF VFs on each NIC, and the assignments in a
// kubelet's folder, "" for none. IDs are addresses; VFs have hints if hints is set.
func Facts(
	machine string, vfsPerPF int, hints bool, kubeletDir string, policy v1alpha1.Kubelet,
) (publish.Facts, error) {
	recorded, err := machines.Load(machine, vfsPerPF)
	if err != nil {
		return publish.Facts{}, err
	}
	sys := recorded.FS()
	tree, err := topology.Read(sys)
	if err != nil {
		return publish.Facts{}, err
	}
	if kubeletDir == "" {
		if kubeletDir, err = os.MkdirTemp("", "kubelet-"); err != nil {
			return publish.Facts{}, err
		}
		defer os.RemoveAll(kubeletDir)
		if err := WriteCheckpoint(kubeletDir); err != nil {
			return publish.Facts{}, err
		}
	}
	reader := publish.NewReader(publish.Config{
		Sys: sys, KubeletDir: kubeletDir, Configz: configz(policy), Log: slog.New(slog.DiscardHandler),
	})
	return reader.Read(context.Background(), tree, Resources(sys, tree, hints), holders.Sources{}), nil
}

// Resources returns the GPUs and VFs of a machine as announced by plugins.
func Resources(_ fs.FS, tree *topology.Tree, hints bool) []publish.Resource {
	gpus := publish.Resource{Name: GPUs, Kind: device.GPU}
	vfs := publish.Resource{Name: VFs, Kind: device.VF}
	for d := range tree.Devices() {
		one := device.Device{ID: d.Address.String(), Address: d.Address, NUMA: d.NUMA, Healthy: true}
		switch {
		case d.Class.IsGPU() && slices.Contains(vendors, d.Vendor):
			gpus.Devices = append(gpus.Devices, one)
		case d.IsVF():
			if !hints {
				one.NUMA = topology.NUMANode{}
			}
			vfs.Devices = append(vfs.Devices, one)
		}
	}
	return slices.SortedFunc(slices.Values([]publish.Resource{gpus, vfs}), func(a, b publish.Resource) int {
		return cmp.Compare(a.Name, b.Name)
	})
}
