// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/test/disk"
	"github.com/tandem-k8s/tandem/test/machines"
)

// Two partitions have each other's ID now, as after a boot. A claim holds the unit that it was given, so that
// its files, written again, give this unit; another claim that gets the other unit has no device node of it.
func TestFilesOfRenamedDevice(t *testing.T) {
	n := newNode(t, "amd-mi300x-smc-thor2-cpx-derived", 1, plainVFs, true)
	one := want{"gpu", pool.TypeGPU, 1}
	n.need("zero", one)
	first, second := n.need("first", one), n.need("second", one)
	n.ready(first)
	before := n.nodesOf(first)
	given := n.prepared(first.UID).Devices[0].GPUs[0]
	i := slices.IndexFunc(n.state.Machine.GPUs, func(g pool.GPU) bool { return g.ID == given })
	n.exchangeIDs(i, i+1)
	n.ready(second)
	after := n.nodesOf(first)
	if !slices.Equal(before, after) {
		t.Errorf("the claim had %v and is given %v now", before, after)
	}
	for _, path := range n.nodesOf(second) {
		if slices.Contains(after, path) {
			t.Errorf("both claims are given %s", path)
		}
	}
	n.exchangeIDs(i, i+1) // after the second claim has written the record
	if again := n.nodesOf(first); !slices.Equal(before, again) {
		t.Errorf("the claim had %v and is given %v after a second boot", before, again)
	}
}

// namedGPUs are GPUs that container runtimes know by name.
type namedGPUs struct{ nvidiaGPUs }

func (namedGPUs) Edits(devices []gpu.Device) container.Edits {
	return container.Edits{Named: container.Named{Devices: []string{"nvidia.com/gpu=" + devices[0].ID}}}
}

// After a boot the kubelet asks again for a prepared claim: the container runtime gets the name that the GPU
// has now.
func TestNameOfRenamedDevice(t *testing.T) {
	sys, tree := machines.Read(t, "nv-h100-oci", 1)
	n := newNodeOf(t, disk.New(1), sys, tree, namedGPUs{nvidiaGPUs{tree}}, plainVFs, true)
	claim := n.need("train", want{"gpu", pool.TypeGPU, 1})
	before := n.ready(claim)[0].CDIDeviceIDs
	given := n.prepared(claim.UID).Devices[0].GPUs[0]
	of := slices.IndexFunc(n.state.Machine.GPUs, func(g pool.GPU) bool { return g.ID == given })
	n.exchangeIDs(of, (of+1)%len(n.state.Machine.GPUs))
	now := "nvidia.com/gpu=" + n.state.Machine.GPUs[of].ID
	if after := n.ready(claim)[0].CDIDeviceIDs; now == before[0] || !slices.Equal(after, []string{now}) {
		t.Errorf("the container runtime gets %v for %s, and got %v", after, now, before)
	}
}

// exchangeIDs boots the node with each other's ID for two partitions, and restores the files.
func (n *node) exchangeIDs(i, j int) {
	n.t.Helper()
	gpus := slices.Clone(n.state.Machine.GPUs)
	gpus[i].ID, gpus[j].ID = gpus[j].ID, gpus[i].ID
	n.state.Machine.GPUs = gpus
	n.state.Pool = pool.Build(n.state.Machine, pool.Options{Counters: true, Taints: true})
	if err := n.Restore(n.t.Context(), n.state); err != nil {
		n.t.Fatal(err)
	}
}

// nodesOf returns the device nodes of a claim's partition.
func (n *node) nodesOf(claim *resourceapi.ResourceClaim) (paths []string) {
	n.t.Helper()
	for _, device := range n.spec(claim).Devices {
		for _, one := range device.ContainerEdits.DeviceNodes {
			if one.Path != "/dev/kfd" {
				paths = append(paths, one.Path)
			}
		}
	}
	return paths
}
