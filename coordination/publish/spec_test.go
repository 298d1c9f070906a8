// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/published"
	"github.com/tandem-k8s/tandem/topology"
)

func read(
	t *testing.T, machine string, vfs int, hints bool, dir string, policy v1alpha1.Kubelet,
	change ...func(gpus, vfs *published.Resource),
) publish.Facts {
	t.Helper()
	f, err := published.Facts(machine, vfs, hints, dir, policy, change...)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestMachines: the switches agree with the distances of the tree, for every GPU and VF of every recorded
// machine, and for every two devices of a kind that share a switch, not only a C2C complex.
func TestMachines(t *testing.T) {
	for _, name := range machines.Names() {
		for _, vfs := range []int{1, 8} {
			f := read(t, name, vfs, true, "", published.Restricted)
			type place struct {
				path, resource string
				alone          bool
			}
			places := map[topology.Address]place{}
			for _, on := range f.Spec.Switches {
				for resource, devices := range on.Devices {
					at := slices.IndexFunc(f.Resources, func(r *device.Resource) bool { return r.Name == resource })
					for _, number := range devices.Numbers() {
						places[f.Resources[at].Ordered()[number].Address] = place{on.Path, resource, on.Alone}
					}
				}
			}
			for a, of := range places {
				for b, other := range places {
					same := of.path == other.path && !of.alone || a == b
					if of.resource == other.resource && same && strings.HasPrefix(f.Tree.Switch(a), "c2c") {
						continue
					}
					if want := f.Tree.Distance(a, b).Level.Direct(); same != want && !sameCard(f.Tree, a, b) {
						t.Errorf("%s: %s and %s on one switch: %v, by the tree %v", name, a, b, same, want)
					}
				}
			}
			total := 0
			for _, r := range f.Resources {
				total += len(r.Devices)
			}
			if len(places) != total {
				t.Errorf("%s: %d of %d devices have a place", name, len(places), total)
			}
		}
	}
}

// sameCard reports whether two functions are on one card, and so near each other on any switch.
func sameCard(tree *topology.Tree, a, b topology.Address) bool {
	p, _ := tree.Device(a)
	q, _ := tree.Device(b)
	return p.Function().Slot() == q.Function().Slot()
}

// TestSize: an object, which every scheduler receives on every change, has a few kilobytes and is within the
// limits.
func TestSize(t *testing.T) {
	for _, name := range machines.Names() {
		spec := read(t, name, 8, true, "", published.Restricted).Spec
		if err := spec.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		text, err := json.Marshal(spec)
		if err != nil || len(text) > 2560 {
			t.Errorf("%s takes %d bytes, %v", name, len(text), err)
		}
	}
}

// TestNumbers: a node with known devices, with pods.
func TestNumbers(t *testing.T) {
	dir := t.TempDir()
	if err := published.WriteCheckpoint(dir,
		published.Give("b", "main", published.GPUs, "0000:11:00.0", "0000:2f:00.0"),
		published.Give("b", "main", published.VFs, "0000:0c:00.1"),
		published.Give("b", "init", published.GPUs, "0000:11:00.0"),
		published.Give("a", "main", "example.com/else", "x"),
		published.Give("c", "main", published.GPUs, "0000:ff:00.0"),
	); err != nil {
		t.Fatal(err)
	}
	spoil := func(gpus, vfs *published.Resource) {
		gpus.Devices[7].Healthy, vfs.Devices[4].Degraded = false, true
	}
	spec := read(t, "oci-mi300x-derived", 2, true, dir, published.Restricted, spoil).Spec
	want := []v1alpha1.Resource{
		{Name: published.GPUs, Kind: v1alpha1.GPU, Devices: 8, Unhealthy: "7",
			Hints: map[string]v1alpha1.Set{"0": "0-3", "1": "4-7"},
			Addresses: strings.Fields("0000:11:00.0 0000:2f:00.0 0000:46:00.0 0000:5d:00.0 " +
				"0000:8b:00.0 0000:aa:00.0 0000:c2:00.0 0000:da:00.0")},
		{Name: published.VFs, Kind: v1alpha1.VF, Devices: 16, Degraded: "2", // the third function
			Hints:     map[string]v1alpha1.Set{"0": "0-7", "1": "8-15"},
			Functions: []v1alpha1.Set{"0-1", "2-3", "4-5", "6-7", "8-9", "10-11", "12-13", "14-15"},
			Addresses: strings.Fields("0000:0c:00.0 0000:2a:00.0 0000:41:00.0 0000:58:00.0 " +
				"0000:86:00.0 0000:a5:00.0 0000:bd:00.0 0000:d5:00.0")},
	}
	if diff := cmp.Diff(want, spec.Resources); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	first := v1alpha1.Switch{Name: "0000:08:00.0", Path: "pci0000:07/0000:07:00.0/0000:08:00.0", NUMA: new(0),
		Devices: map[string]v1alpha1.Set{published.GPUs: "0", published.VFs: "0-1"}}
	if diff := cmp.Diff(first, spec.Switches[0]); diff != "" || len(spec.Switches) != 8 {
		t.Errorf("%d switches, the first (-want +got):\n%s", len(spec.Switches), diff)
	}
	held := []v1alpha1.Held{{UID: "b", Containers: []v1alpha1.Container{
		{Name: "init", Devices: map[string]v1alpha1.Set{published.GPUs: "0"}},
		{Name: "main", Devices: map[string]v1alpha1.Set{published.GPUs: "0-1", published.VFs: "0"}},
	}}, {UID: "c", Containers: []v1alpha1.Container{{Name: "main"}}}} // its GPU is gone
	if diff := cmp.Diff(held, spec.Held); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	counts := v1alpha1.Summary{Switches: 8, GPUs: "5/7", VFs: "15/16", FreePairs: 5}
	if diff := cmp.Diff(counts, spec.Summary); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
}

// TestEnded: devices of ended pods count as free if the kubelet lists its pods. They stay in the holdings in
// any case.
func TestEnded(t *testing.T) {
	f := read(t, "oci-mi300x-derived", 1, true, "", published.Restricted)
	held := map[string]kubelet.Devices{
		"a/main": {published.GPUs: {"0000:11:00.0"}},
		"b/main": {published.GPUs: {"0000:2f:00.0", "0000:46:00.0"}, published.VFs: {"0000:2a:00.1"}},
	}
	for _, test := range []struct {
		gone publish.Gone
		want v1alpha1.Summary
	}{
		{nil, v1alpha1.Summary{Switches: 8, GPUs: "5/8", VFs: "7/8", FreePairs: 5}},
		{publish.Gone{"c": true}, v1alpha1.Summary{Switches: 8, GPUs: "5/8", VFs: "7/8", FreePairs: 5}},
		{publish.Gone{"b": true}, v1alpha1.Summary{Switches: 8, GPUs: "7/8", VFs: "8/8", FreePairs: 7}},
		{publish.Gone{"a": true, "b": true}, v1alpha1.Summary{Switches: 8, GPUs: "8/8", VFs: "8/8", FreePairs: 8}},
	} {
		f.Gone = test.gone
		spec := publish.BuildSpec(f, held)
		if diff := cmp.Diff(test.want, spec.Summary); diff != "" || len(spec.Held) != 2 {
			t.Errorf("gone %v: %d pods hold something, summary (-want +got):\n%s", test.gone, len(spec.Held), diff)
		}
	}
}

// TestOrder: the order in which maps are walked does not matter.
func TestOrder(t *testing.T) {
	f := read(t, "oci-mi300x-derived", 2, true, "", published.Restricted)
	held := map[string]kubelet.Devices{
		"b/main": {published.GPUs: {"0000:11:00.0", "0000:2f:00.0"}},
		"a/main": {published.VFs: {"0000:0c:00.1"}}, "a/init": {published.VFs: {"0000:0c:00.2"}},
	}
	for range 20 {
		if diff := cmp.Diff(publish.BuildSpec(f, held), publish.BuildSpec(f, held)); diff != "" {
			t.Fatalf("in another order (-first +now):\n%s", diff)
		}
	}
}

// TestAbsentPlugin: the devices of a plugin that is not connected are unhealthy, as at the kubelet.
func TestAbsentPlugin(t *testing.T) {
	f := read(t, "oci-mi300x-derived", 1, true, "", published.Restricted)
	left := device.Resources{published.GPUs: f.Resources[0]}.Leave(published.GPUs)
	f.Resources = left.All()
	if got := publish.BuildSpec(f, nil); got.Resources[0].Unhealthy != "0-7" || got.Summary.GPUs != "0/0" {
		t.Errorf("unhealthy: %q; GPUs %s", got.Resources[0].Unhealthy, got.Summary.GPUs)
	}
}

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
