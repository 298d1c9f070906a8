// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	testserver "github.com/tandem-k8s/tandem/test/server"
)

const (
	gpus = testserver.GPU
	vfs  = testserver.VF
)

// container returns a further container of a pod.
func container(name string, gpuCount, vfCount int) v1.Container {
	c := testserver.Pod("", gpuCount, vfCount).Spec.Containers[0]
	c.Name = name
	return c
}

func nobody(types.UID) bool { return false }

func newNode(t testing.TB, topology *v1alpha1.NodeTopology) *Node {
	t.Helper()
	n, err := New(topology, nil)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	s := newNode(t, testserver.Topology("a", 1, true)).State(nobody)
	if got, want := s.Room(), (Room{1, 2, 4, 8}); got != want {
		t.Errorf("room %v, want %v", got, want)
	}
	v := s.Admit(testserver.Pod("four", 4, 4))
	want := Verdict{Admitted: true, Pairs: 4, Wanted: 4, Containers: []Container{{
		Name: "app", Nodes: 1, Pairs: 4, Devices: map[string][]int{gpus: {0, 1, 2, 3}, vfs: {0, 1, 2, 3}},
	}}}
	if !reflect.DeepEqual(v, want) {
		t.Errorf("got %+v\nwant %+v", v, want)
	}
	if got, want := s.Room(), (Room{0, 1, 2, 4}); got != want {
		t.Errorf("room %v, want %v", got, want)
	}
	s.Admit(testserver.Pod("one", 1, 0))
	if got := s.Stranded(); got != 0 {
		t.Errorf("stranded %d, want 0", got)
	}
	c := s.Clone()
	v = c.Admit(testserver.Pod("late", 4, 4))
	want = Verdict{Wanted: 4,
		Reason: "only 3 of 8 amd.com/gpu are free, asked for are 4 amd.com/gpu and 4 tandem.dev/rdma_vf"}
	if !reflect.DeepEqual(v, want) {
		t.Errorf("got %+v\nwant %+v", v, want)
	}
	c.Remove("four")
	v = c.Ask(testserver.Pod("late", 4, 4))
	if !v.Admitted || c.Holds("late") || c.Holds("four") || !s.Holds("four") {
		t.Errorf("got %+v", v)
	}
	c.Admit(testserver.Pod("a", 1, 1))
	if v = c.Ask(testserver.Pod("late", 4, 4)); v.Reason !=
		"no NUMA node has 4 amd.com/gpu and 4 tandem.dev/rdma_vf free; policy restricted refuses more nodes" {
		t.Errorf("got %+v", v)
	}
}

// TestNever: the reason is that of docs/cluster.md.
func TestNever(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	s := newNode(t, testserver.Topology("a", 8, true)).State(nobody)
	v := s.Admit(testserver.Pod("a", 8, 8))
	want := "2 NUMA nodes needed for 8 GPUs, VFs with hints need 1: never admitted under restricted; " +
		"excludeTopology is the way out"
	if !strings.Contains(strings.Join(strings.Fields(string(page)), " "), want) {
		t.Errorf("docs/cluster.md does not show %q", want)
	}
	if !v.Never || v.Admitted || v.Reason != want {
		t.Errorf("got %+v", v)
	}
	s.Admit(testserver.Pod("b", 4, 4))
	if v := s.Ask(testserver.Pod("a", 8, 8)); !v.Never || v.Reason != want {
		t.Errorf("on a half full node: got %+v", v)
	}
	s = newNode(t, testserver.Topology("a", 8, false)).State(nobody)
	if v := s.Admit(testserver.Pod("a", 8, 8)); !v.Admitted || v.Pairs != 8 {
		t.Errorf("got %+v", v)
	}
}

// Pods without holdings are never in the kubelet's checkpoint.
func TestConcerns(t *testing.T) {
	t.Parallel()
	n := newNode(t, testserver.Topology("a", 1, true))
	zero, backed := testserver.Pod("zero", 0, 0), testserver.Pod("backed", 1, 0)
	zero.Spec.Containers[0].Resources.Limits[gpus] = quantity.MustParse("0")
	backed.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{
		RequestMappings: []v1.ContainerExtendedResourceRequest{{ContainerName: "app", ResourceName: gpus}},
	}
	initial := testserver.Pod("init", 0, 0)
	initial.Spec.InitContainers = []v1.Container{container("init", 0, 1)}
	for pod, want := range map[*v1.Pod]bool{
		zero: false, backed: false, initial: true,
		testserver.Pod("none", 0, 0): false, testserver.Pod("gpu", 1, 0): true,
	} {
		if got := n.Concerns(pod); got != want {
			t.Errorf("%s: %t", pod.Name, got)
		}
	}
}

func BenchmarkVerdict(b *testing.B) {
	for _, size := range []int{1, 4} {
		pod := testserver.Pod("pod", size, size)
		n := newNode(b, testserver.Topology("a", 8, true))
		s := n.State(nobody)
		s.Admit(testserver.Pod("before", 2, 2))
		b.Run(fmt.Sprint("ask/", size), func(b *testing.B) {
			for b.Loop() {
				s.Ask(pod)
			}
		})
		b.Run(fmt.Sprint("admit/", size), func(b *testing.B) {
			for b.Loop() {
				s.Clone().Admit(pod)
			}
		})
		b.Run(fmt.Sprint("room/", size), func(b *testing.B) {
			for b.Loop() {
				s.Room()
			}
		})
	}
}

// TestRailsUnderBestEffort: under best-effort a container with GPUs of two NUMA nodes gets a VF of each of
// two pools with excludeTopology, on the GPUs' switches. The coordinator, which reads the kubelet's policy,
// chooses both VFs together at the first of the two questions (coordination/admission, request.go). Rail a
// is on the switches of both GPUs, rail b only on that of the first.
func TestRailsUnderBestEffort(t *testing.T) {
	const a, b = "tandem.dev/rail_a", "tandem.dev/rail_b"
	topology := testserver.Topology("a", 1, false)
	spec := &topology.Spec
	spec.Kubelet.TopologyManagerPolicy = "best-effort"
	rail := func(name string, function int) v1alpha1.Resource {
		r := v1alpha1.Resource{Name: name, Kind: v1alpha1.VF, Devices: 8}
		for i := range 8 {
			r.Addresses = append(r.Addresses, fmt.Sprintf("0000:%02x:%02x.0", i*16+4, function))
			spec.Switches[i].Devices[name] = v1alpha1.Set(fmt.Sprint(i))
		}
		return r
	}
	spec.Resources = append(spec.Resources[:1], rail(a, 1), rail(b, 2))
	for i := range spec.Switches {
		delete(spec.Switches[i].Devices, vfs)
	}
	spec.Held = []v1alpha1.Held{{UID: "others", Containers: []v1alpha1.Container{{
		Name: "app", Devices: map[string]v1alpha1.Set{gpus: "1-3,5-7", a: "1-3,5-7", b: "2-7"},
	}}}}
	pod := testserver.Pod("pod", 2, 0)
	pod.Annotations = map[string]string{"tandem.dev/alignment": "required"}
	for _, name := range []v1.ResourceName{a, b} {
		pod.Spec.Containers[0].Resources.Limits[name] = *quantity.NewQuantity(1, quantity.DecimalSI)
	}
	state := newNode(t, topology).State(func(types.UID) bool { return true })
	if v := state.Admit(pod); !v.Admitted || v.Pairs != 2 {
		t.Errorf("%+v, want 2 pairs: GPU 0 with rail b, GPU 4 with rail a", v)
	}
}

// TestKubeletSettings: scope and policy options count, and a node with an unknown one is not judged.
func TestKubeletSettings(t *testing.T) {
	nodes := []v1alpha1.NUMANode{{Number: 0, Distances: []int{10, 21}}, {Number: 2, Distances: []int{22, 10}}}
	distances := [][]int{{10, 0, 21}, nil, {22, 0, 10}}
	rule := func(scopePod bool, most int, distances [][]int) model.TopologyManager {
		return model.TopologyManager{ScopePod: scopePod, Rule: model.Rule{
			Policy: model.Restricted, Machine: 0b101, MaxNodes: most, Distances: distances,
		}}
	}
	for name, c := range map[string]struct {
		scope, option, value string
		want                 model.TopologyManager
		wrong                bool
	}{
		"nothing more":      {want: rule(false, 0, nil)},
		"scope container":   {scope: "container", want: rule(false, 0, nil)},
		"scope pod":         {scope: "pod", want: rule(true, 0, nil)},
		"another scope":     {scope: "node", wrong: true},
		"closest":           {option: "prefer-closest-numa-nodes", value: "true", want: rule(false, 0, distances)},
		"not closest":       {option: "prefer-closest-numa-nodes", value: "false", want: rule(false, 0, nil)},
		"closest as a word": {option: "prefer-closest-numa-nodes", value: "near", wrong: true},
		"more nodes":        {option: "max-allowable-numa-nodes", value: "16", want: rule(false, 16, nil)},
		"another option":    {option: "prefer-far-numa-nodes", value: "true", wrong: true},
	} {
		spec := &v1alpha1.Spec{NUMANodes: nodes, Kubelet: v1alpha1.Kubelet{
			TopologyManagerPolicy: "restricted", TopologyManagerScope: c.scope,
		}}
		if c.option != "" {
			spec.Kubelet.TopologyManagerPolicyOptions = map[string]string{c.option: c.value}
		}
		got, err := spec.Kubelet.TopologyManager(numaNodes(spec))
		if (err != nil) != c.wrong || !c.wrong && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
}

// TestAlignmentOfTheNode: a node whose plugins require alignment of every pod admits no pod with pairs apart,
// except of a namespace that may opt out, and does.
func TestAlignmentOfTheNode(t *testing.T) {
	for _, c := range []struct {
		name, namespace, annotation string
		alignment                   model.Alignment
		admitted                    bool
	}{
		{name: "control: no rule", admitted: true},
		{name: "control: the pod asks for it", annotation: "required"},
		{name: "required", alignment: model.Alignment{Required: true}},
		{name: "may not opt out", annotation: "preferred", alignment: model.Alignment{Required: true}},
		{
			name: "opts out", annotation: "preferred", admitted: true, namespace: "team",
			alignment: model.Alignment{Required: true, OptOut: "other,team"},
		},
		{name: "may opt out", namespace: "team", alignment: model.Alignment{Required: true, OptOut: "all"}},
	} {
		topology := testserver.Topology("a", 1, true)
		topology.Spec.Alignment = c.alignment
		testserver.Hold(topology, "others", "1-7", "0") // GPU 0 and VFs 1-7 are free
		pod := testserver.Pod("pod", 1, 1)
		pod.Namespace = c.namespace
		if c.annotation != "" {
			pod.Annotations = map[string]string{"tandem.dev/alignment": c.annotation}
		}
		v := newNode(t, topology).State(func(types.UID) bool { return true }).Ask(pod)
		if v.Admitted != c.admitted || v.Required == c.admitted {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
	topology := testserver.Topology("a", 1, true)
	topology.Spec.Alignment.OptOut = "team,,other"
	if _, err := New(topology, nil); err == nil {
		t.Error("a malformed list of namespaces is no error")
	}
}
