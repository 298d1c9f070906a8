// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
)

const (
	gpus = "amd.com/gpu"
	vfs  = "tandem.dev/rdma_vf"
)

// server is a node with two NUMA nodes, four switches on each, and a GPU and a NIC on each switch.
func server(vfsPerNIC int, hinted bool) *v1alpha1.NodeTopology {
	t := &v1alpha1.NodeTopology{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	t.Spec.Kubelet = v1alpha1.Kubelet{TopologyManagerPolicy: "restricted", TopologyManagerScope: "container"}
	on := func(node, each int) v1alpha1.Set {
		return v1alpha1.Set(fmt.Sprintf("%d-%d", node*4*each, (node+1)*4*each-1))
	}
	g := v1alpha1.Resource{Name: gpus, Kind: v1alpha1.GPU, Devices: 8,
		Hints: map[string]v1alpha1.Set{"0": on(0, 1), "1": on(1, 1)}}
	v := v1alpha1.Resource{Name: vfs, Kind: v1alpha1.VF, Devices: 8 * vfsPerNIC}
	if hinted {
		v.Hints = map[string]v1alpha1.Set{"0": on(0, vfsPerNIC), "1": on(1, vfsPerNIC)}
	}
	for i := range 8 {
		set := v1alpha1.Set(fmt.Sprintf("%d-%d", i*vfsPerNIC, (i+1)*vfsPerNIC-1))
		v.Functions = append(v.Functions, set)
		g.Addresses = append(g.Addresses, fmt.Sprintf("0000:%02x:00.0", i*16+2))
		v.Addresses = append(v.Addresses, fmt.Sprintf("0000:%02x:00.0", i*16+3))
		t.Spec.Switches = append(t.Spec.Switches, v1alpha1.Switch{
			Name: fmt.Sprintf("0000:%02x:01.0", i*16), NUMA: new(i / 4),
			Path:    fmt.Sprintf("pci0000:%02x/0000:%02x:01.0/0000:%02x:00.0", i*16, i*16, i*16+1),
			Devices: map[string]v1alpha1.Set{gpus: v1alpha1.Set(fmt.Sprint(i)), vfs: set},
		})
	}
	t.Spec.Resources = []v1alpha1.Resource{g, v}
	t.Spec.NUMANodes = []v1alpha1.NUMANode{{Number: 0}, {Number: 1}}
	return t
}

func asking(name string, gpuCount, vfCount int) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec:       v1.PodSpec{Containers: []v1.Container{container("app", gpuCount, vfCount)}},
	}
}

func container(name string, gpuCount, vfCount int) v1.Container {
	limits := v1.ResourceList{}
	for resourceName, n := range map[v1.ResourceName]int{gpus: gpuCount, vfs: vfCount} {
		if n > 0 {
			limits[resourceName] = *quantity.NewQuantity(int64(n), quantity.DecimalSI)
		}
	}
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Limits: limits}}
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
	s := newNode(t, server(1, true)).State(nobody)
	if got, want := s.Room(), (Room{1, 2, 4, 8}); got != want {
		t.Errorf("room %v, want %v", got, want)
	}
	v := s.Admit(asking("four", 4, 4))
	want := Verdict{Admitted: true, Pairs: 4, Wanted: 4, Containers: []Container{{
		Name: "app", Nodes: 1, Pairs: 4, Devices: map[string][]int{gpus: {0, 1, 2, 3}, vfs: {0, 1, 2, 3}},
	}}}
	if !reflect.DeepEqual(v, want) {
		t.Errorf("got %+v\nwant %+v", v, want)
	}
	if got, want := s.Room(), (Room{0, 1, 2, 4}); got != want {
		t.Errorf("room %v, want %v", got, want)
	}
	s.Admit(asking("one", 1, 0))
	if got := s.Stranded(); got != 0 {
		t.Errorf("stranded %d, want 0", got)
	}
	c := s.Clone()
	v = c.Admit(asking("late", 4, 4))
	want = Verdict{Wanted: 4,
		Reason: "only 3 of 8 amd.com/gpu are free, asked for are 4 amd.com/gpu and 4 tandem.dev/rdma_vf"}
	if !reflect.DeepEqual(v, want) {
		t.Errorf("got %+v\nwant %+v", v, want)
	}
	c.Remove("four")
	if v = c.Ask(asking("late", 4, 4)); !v.Admitted || c.Holds("late") || c.Holds("four") || !s.Holds("four") {
		t.Errorf("got %+v", v)
	}
	c.Admit(asking("a", 1, 1))
	if v = c.Ask(asking("late", 4, 4)); v.Reason !=
		"no NUMA node has 4 amd.com/gpu and 4 tandem.dev/rdma_vf free; policy restricted refuses more nodes" {
		t.Errorf("got %+v", v)
	}
}

func TestNever(t *testing.T) {
	t.Parallel()
	s := newNode(t, server(8, true)).State(nobody)
	v := s.Admit(asking("a", 8, 8))
	want := "2 NUMA nodes needed for 8 GPUs, VFs with hints need 1: never admitted under restricted; " +
		"excludeTopology is the way out"
	if !v.Never || v.Admitted || v.Reason != want {
		t.Errorf("got %+v", v)
	}
	s.Admit(asking("b", 4, 4))
	if v := s.Ask(asking("a", 8, 8)); !v.Never || v.Reason != want {
		t.Errorf("on a half full node: got %+v", v)
	}
	s = newNode(t, server(8, false)).State(nobody)
	if v := s.Admit(asking("a", 8, 8)); !v.Admitted || v.Pairs != 8 {
		t.Errorf("got %+v", v)
	}
}

// Pods without holdings are never in the kubelet's checkpoint.
func TestConcerns(t *testing.T) {
	t.Parallel()
	n := newNode(t, server(1, true))
	zero, backed := asking("zero", 0, 0), asking("backed", 1, 0)
	zero.Spec.Containers[0].Resources.Limits[gpus] = quantity.MustParse("0")
	backed.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{
		RequestMappings: []v1.ContainerExtendedResourceRequest{{ContainerName: "app", ResourceName: gpus}},
	}
	initial := asking("init", 0, 0)
	initial.Spec.InitContainers = []v1.Container{container("init", 0, 1)}
	for pod, want := range map[*v1.Pod]bool{
		zero: false, backed: false, asking("none", 0, 0): false, initial: true, asking("gpu", 1, 0): true,
	} {
		if got := n.Concerns(pod); got != want {
			t.Errorf("%s: %t", pod.Name, got)
		}
	}
}

func BenchmarkVerdict(b *testing.B) {
	for _, size := range []int{1, 4} {
		pod := asking("pod", size, size)
		n := newNode(b, server(8, true))
		s := n.State(nobody)
		s.Admit(asking("before", 2, 2))
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
