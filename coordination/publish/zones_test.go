// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/k8stopologyawareschedwg/podfingerprint"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/test/published"
)

// amount is a resource of a zone as text: capacity, allocatable, available.
type amount [3]string

func amounts(z publish.Zone) map[string]amount {
	all := map[string]amount{}
	for _, r := range z.Resources {
		all[r.Name] = amount{r.Capacity.String(), r.Allocatable.String(), r.Available.String()}
	}
	return all
}

// buildZones returns the zones of a machine with the first of eight GPUs, four on each of two NUMA nodes, of
// which one is broken and one is allocated.
func buildZones(t *testing.T, hints bool, gpus int, change func(*publish.Facts)) map[string]publish.Zone {
	t.Helper()
	dir := t.TempDir()
	if err := published.WriteCheckpoint(dir,
		published.Give("a", "main", published.GPUs, "0000:11:00.0")); err != nil {
		t.Fatal(err)
	}
	f := read(t, "oci-mi300x-derived", 2, hints, dir, published.Restricted, func(all, _ *published.Resource) {
		all.Devices = all.Devices[:gpus]
		all.Devices[1].Healthy = false
	})
	if change != nil {
		change(&f)
	}
	byName := map[string]publish.Zone{}
	for _, z := range publish.BuildZones(f).Zones {
		byName[z.Name] = z
	}
	return byName
}

// TestHintsOfZones: NUMA nodes list resources with hints, because the kubelet aligns nothing else; switches
// list all.
func TestHintsOfZones(t *testing.T) {
	for hints, want := range map[bool]map[string]amount{
		true:  {"cpu": {"112", "112", "112"}, published.GPUs: {"4", "3", "2"}, published.VFs: {"8", "8", "8"}},
		false: {"cpu": {"112", "112", "112"}, published.GPUs: {"4", "3", "2"}},
	} {
		all := buildZones(t, hints, 8, nil)
		if diff := cmp.Diff(want, amounts(all["node-0"])); diff != "" {
			t.Errorf("hints %v (-want +got):\n%s", hints, diff)
		}
		on := all["0000:08:00.0"]
		if diff := cmp.Diff(map[string]amount{published.GPUs: {"1", "1", "0"}, published.VFs: {"2", "2", "2"}},
			amounts(on)); diff != "" || on.Parent != "node-0" || on.Type != "Switch" || len(all) != 10 {
			t.Errorf("%d zones, switch %+v (-want +got):\n%s", len(all), on, diff)
		}
		if diff := cmp.Diff([]publish.Cost{{Name: "node-0", Value: 10}, {Name: "node-1", Value: 20}},
			all["node-0"].Costs); diff != "" {
			t.Errorf("costs (-want +got):\n%s", diff)
		}
	}
}

// TestUnreadManager: what a manager that was never read may have assigned is not available.
func TestUnreadManager(t *testing.T) {
	for cause, want := range map[error]map[string]amount{
		kubelet.ErrNotRead: {"cpu": {"112", "112", "112"}, "memory": {"1Gi", "1Gi", "1Gi"}},
		fs.ErrNotExist:     {"cpu": {"112", "112", "112"}, "memory": {"1Gi", "1Gi", "1Gi"}},
		syscall.EIO:        {"cpu": {"112", "112", "0"}, "memory": {"1Gi", "1Gi", "0"}},
	} {
		all := buildZones(t, false, 8, func(f *publish.Facts) {
			f.CPUs = kubelet.Read(kubelet.CPUState{}, cause)
			f.Memory = kubelet.Read(kubelet.MemoryState{}, cause)
			f.NUMANodes[0].Memory = map[string]v1alpha1.Memory{"memory": {Total: 1 << 30}}
		})
		got := amounts(all["node-0"])
		delete(got, published.GPUs)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", cause, diff)
		}
	}
}

// TestNoneOfIt: a NUMA node without devices of a resource lists 0, because the resource must appear in all
// nodes.
func TestNoneOfIt(t *testing.T) {
	all := buildZones(t, true, 4, nil)
	if got := amounts(all["node-1"])[published.GPUs]; got != (amount{"0", "0", "0"}) {
		t.Errorf("GPUs %v", got)
	}
}

// TestCPUsAndMemoryOfZones: both are always listed, because without them a scheduler rejects Guaranteed pods.
// Available are those that the static policy can assign: without the CPUs of containers, each counted once,
// and without those reserved for the system, by number the first ones.
func TestCPUsAndMemoryOfZones(t *testing.T) {
	for name, c := range map[string]struct {
		static   map[string]string // CPUs by container; nil for another policy
		byName   string
		byNumber int
		cpus     amount
	}{
		"another policy":     {byName: "0", cpus: amount{"4", "4", "4"}},
		"reserved by name":   {map[string]string{"main": "2-3,9"}, "0", 0, amount{"4", "3", "1"}},
		"reserved by number": {map[string]string{}, "", 2, amount{"4", "2", "2"}},
		"an init container before it": {
			map[string]string{"init": "2-3", "main": "2-3"}, "", 0, amount{"4", "4", "2"},
		},
	} {
		all := buildZones(t, false, 8, func(f *publish.Facts) {
			f.NUMANodes[0].CPUs = "0-3"
			f.NUMANodes[0].Memory = map[string]v1alpha1.Memory{"memory": {Total: 64 << 30}}
			f.Spec.Kubelet.ReservedSystemCPUs, f.Spec.Kubelet.ReservedCPUs = c.byName, c.byNumber
			if c.static != nil {
				f.CPUs = kubelet.Read(kubelet.CPUState{Entries: map[string]map[string]string{"a": c.static}}, nil)
			}
		})
		want := map[string]amount{
			"cpu": c.cpus, "memory": {"64Gi", "64Gi", "64Gi"}, published.GPUs: {"4", "3", "2"},
		}
		if diff := cmp.Diff(want, amounts(all["node-0"])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if got, want := amounts(all["node-1"])["cpu"], (amount{"112", "112", "112"}); got != want {
			t.Errorf("%s: CPUs of the other node %v, want %v", name, got, want)
		}
	}
}

// TestStaticMemoryOfZones: the amounts of a NUMA node are those of a static memory manager.
func TestStaticMemoryOfZones(t *testing.T) {
	var state kubelet.MemoryState
	if err := json.Unmarshal([]byte(memoryState), &state); err != nil {
		t.Fatal(err)
	}
	all := buildZones(t, false, 8, func(f *publish.Facts) { f.Memory = kubelet.Read(state, nil) })
	if got, want := amounts(all["node-0"])["memory"], (amount{"100", "90", "70"}); got != want {
		t.Errorf("memory %v, want %v", got, want)
	}
}

// TestWords: the policy in the attributes, and in the older field for Koordinator.
func TestWords(t *testing.T) {
	for _, c := range []struct {
		policy, scope, old string
		attributes         int
	}{
		{"restricted", "container", "Restricted", 2},
		{"single-numa-node", "pod", "SingleNUMANodePodLevel", 2},
		{"single-numa-node", "container", "SingleNUMANodeContainerLevel", 2},
		{"none", "", "None", 2}, {"best-effort", "container", "BestEffort", 2}, {"", "", "", 0},
	} {
		f := read(t, "nv-h800-8x8", 1, true, "", published.Restricted)
		f.Spec.Kubelet = v1alpha1.Kubelet{TopologyManagerPolicy: c.policy, TopologyManagerScope: c.scope}
		got := publish.BuildZones(f)
		if len(got.Attributes) != c.attributes || (c.old == "") != (got.Policies == nil) ||
			c.old != "" && got.Policies[0] != c.old {
			t.Errorf("%+v: %v %v", c, got.Policies, got.Attributes)
		}
	}
}

// TestFingerprint: equal sets of pods have equal fingerprints, and different sets different ones.
func TestFingerprint(t *testing.T) {
	of := func(pods publish.Exclusive) map[string]string {
		f := read(t, "nv-h800-8x8", 1, true, "", v1alpha1.Kubelet{})
		f.Exclusive = pods
		words := map[string]string{}
		for _, a := range publish.BuildZones(f).Attributes {
			words[a.Name] = a.Value
		}
		return words
	}
	a, b := types.NamespacedName{Namespace: "x", Name: "a"}, types.NamespacedName{Namespace: "y", Name: "b"}
	words := of(publish.Exclusive{b, a})
	counted := podfingerprint.NewFingerprint(0)
	_ = counted.Add("x", "a")
	err := counted.Check(words[podfingerprint.Attribute])
	if !errors.Is(err, podfingerprint.ErrSignatureMismatch) {
		t.Errorf("one pod is as two: %v", err)
	}
	_ = counted.Add("y", "b")
	if err := counted.Check(words[podfingerprint.Attribute]); err != nil {
		t.Errorf("the same pods: %v", err)
	}
	if method := words[podfingerprint.AttributeMethod]; method != podfingerprint.MethodWithExclusiveResources {
		t.Errorf("method %q", method)
	}
	if words := of(nil); len(words) > 0 {
		t.Errorf("nobody tells of pods, and the object says %v", words)
	}
	if words := of(publish.Exclusive{}); len(words) != 2 {
		t.Errorf("a node without pods says %v", words)
	}
}
