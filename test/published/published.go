// SPDX-License-Identifier: Apache-2.0

// Package published converts recorded machines to the facts that their nodes would publish.
package published

import (
	"context"
	"log/slog"
	"os"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/device"
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

// Facts returns the facts of a recorded machine with vfsPerPF VFs on each NIC, and the assignments in a
// kubelet's folder, "" for none. IDs are addresses; VFs have hints if hints is set. The functions change what
// the plugins announce.
func Facts(
	machine string, vfsPerPF int, hints bool, kubeletDir string, policy v1alpha1.Kubelet,
	change ...func(gpus, vfs *Resource),
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
	resources := Resources(tree, hints)
	for _, c := range change {
		c(&resources[0], &resources[1])
	}
	announced := admission.Announced{Tree: tree, Resources: Announce(resources...)}
	return reader.Read(context.Background(), announced), nil
}

// Resource is a resource as a plugin announces it.
type Resource struct {
	Name    string
	Kind    device.Kind
	Devices []device.Device
	Links   []topology.Link
}

// Announce returns resources after their announcement, by name.
func Announce(resources ...Resource) []*device.Resource {
	set := device.Resources{}
	for _, r := range resources {
		set[r.Name] = device.NewResource(r.Name, r.Kind, r.Devices)
		set[r.Name].Links, set[r.Name].Joined = r.Links, true
	}
	return set.All()
}

// IDs returns the IDs of devices, sorted, by their numbers in the published object.
func IDs(resources []Resource, numbers map[string][]int) map[string][]string {
	ids := map[string][]string{}
	for _, r := range resources {
		sorted := slices.SortedFunc(slices.Values(r.Devices), device.Compare)
		for _, number := range numbers[r.Name] {
			ids[r.Name] = append(ids[r.Name], sorted[number].ID)
		}
		slices.Sort(ids[r.Name])
	}
	return ids
}

// Resources returns the GPUs and VFs of a machine as announced by plugins.
func Resources(tree *topology.Tree, hints bool) []Resource {
	gpus, vfs := Resource{Name: GPUs, Kind: device.GPU}, Resource{Name: VFs, Kind: device.VF}
	for d := range tree.Devices() {
		one := device.Device{ID: d.Address.String(), Address: d.Address, NUMA: d.NUMA, Healthy: true}
		switch {
		case machines.IsGPU(d):
			gpus.Devices = append(gpus.Devices, one)
		case d.IsVF():
			if !hints {
				one.NUMA = topology.NUMANode{}
			}
			vfs.Devices = append(vfs.Devices, one)
		}
	}
	return []Resource{gpus, vfs}
}
