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
