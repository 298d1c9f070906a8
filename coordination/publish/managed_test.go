// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/test/published"
	"github.com/tandem-k8s/tandem/topology"
)

// Files in the kubelet's format.
const (
	cpuState = `{"policyName":"static","defaultCpuSet":"0,4-7",` +
		`"entries":{"u1":{"main":"1-3","side":"8"}},"checksum":1}`
	memoryState = `{"policyName":"Static","machineState":{"0":{"numberOfAssignments":1,"memoryMap":{"memory":{` +
		`"total":100,"systemReserved":10,"allocatable":90,"reserved":20,"free":70}},"cells":[0]}},` +
		`"entries":{"u1":{"main":[{"numaAffinity":[0,1],"type":"memory","size":20}]}},"checksum":1}`
)

func TestCPUsAndMemory(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		kubelet.CPUStateFile: cpuState, kubelet.MemoryStateFile: memoryState,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	policy := published.Restricted
	if spec := read(t, "nv-h800-8x8", 1, true, dir, policy).Spec; spec.Held != nil ||
		spec.NUMANodes[0].CPUs != "" || spec.NUMANodes[0].Memory != nil {
		t.Errorf("CPUs and memory that nobody gets alone are published: %+v", spec)
	}
	policy.CPUManagerPolicy, policy.MemoryManagerPolicy = "static", "Static"
	policy.ReservedSystemCPUs = "0"
	f := read(t, "nv-h800-8x8", 1, true, dir, policy)
	f.NUMANodes[0].CPUs = "0-3,8"
	f.NUMANodes[0].Cores, f.NUMANodes[0].Socket = []v1alpha1.Set{"0,8"}, new(1)
	spec := publish.BuildSpec(f, nil)
	held := []v1alpha1.Held{{UID: "u1", Containers: []v1alpha1.Container{
		{Name: "main", CPUs: "1-3", Memory: []v1alpha1.MemoryBlock{{NUMANodes: "0-1", Type: "memory", Size: 20}}},
		{Name: "side", CPUs: "8"},
	}}}
	if diff := cmp.Diff(held, spec.Held); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	reserved := []v1alpha1.MemoryReserved{{Group: "0", Memory: map[string]uint64{"memory": 20}}}
	if diff := cmp.Diff(reserved, spec.MemoryReserved); diff != "" {
		t.Errorf("reserved (-want +got):\n%s", diff)
	}
	node := v1alpha1.NUMANode{Number: 0, Distances: f.NUMANodes[0].Distances, CPUs: "0-3,8",
		Cores: []v1alpha1.Set{"0,8"}, Socket: new(1),
		Memory: map[string]v1alpha1.Memory{"memory": {Total: 100, SystemReserved: 10, Allocatable: 90}}}
	if diff := cmp.Diff(node, spec.NUMANodes[0]); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
	if spec.Kubelet.ReservedSystemCPUs != "0" {
		t.Errorf("reserved %q", spec.Kubelet.ReservedSystemCPUs)
	}
}

// TestLinks: equal links between all GPUs are omitted; otherwise each link is listed.
func TestLinks(t *testing.T) {
	linked := func(without int) []v1alpha1.Link {
		return read(t, "nv-h800-8x8", 1, true, "", published.Restricted, func(gpus, _ *published.Resource) {
			gpus.Devices = gpus.Devices[:3]
			for i, a := range gpus.Devices {
				for _, b := range gpus.Devices[i+1:] {
					gpus.Links = append(gpus.Links,
						topology.Link{A: b.Address, B: a.Address, Type: topology.NVLink, Hops: 1, Count: 18})
				}
			}
			gpus.Links = gpus.Links[without:]
		}).Spec.Links
	}
	if links := linked(0); links != nil {
		t.Errorf("equal links are published: %v", links)
	}
	want := []v1alpha1.Link{
		{A: "amd.com/gpu/0", B: "amd.com/gpu/2", Type: "NVLINK", Hops: 1, Count: 18},
		{A: "amd.com/gpu/1", B: "amd.com/gpu/2", Type: "NVLINK", Hops: 1, Count: 18},
	}
	if diff := cmp.Diff(want, linked(1)); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
}

// TestUnplaced: a device outside the tree makes no pair.
func TestUnplaced(t *testing.T) {
	move := func(gpus, vfs *published.Resource) {
		for bus, r := range []*published.Resource{gpus, vfs} {
			r.Devices = r.Devices[:1]
			r.Devices[0].Address = topology.Address{Domain: 9, Bus: uint8(bus)}
		}
	}
	spec := read(t, "oci-mi300x-derived", 1, false, "", published.Restricted, move).Spec
	want := []v1alpha1.Switch{{Name: "unknown", Path: "unknown", Alone: true,
		Devices: map[string]v1alpha1.Set{published.GPUs: "0", published.VFs: "0"}}}
	if diff := cmp.Diff(want, spec.Switches); diff != "" || spec.Summary.FreePairs != 0 {
		t.Errorf("%+v (-want +got):\n%s", spec.Summary, diff)
	}
}
