// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
)

// The resources of the fake pair.
const (
	fakeGPU = "example.com/gpu"
	fakeVF  = "example.com/vf"
)

// fakePair is a node with two NUMA nodes, eight GPUs and a pool of VFs.
type fakePair struct {
	*node.Node
	dir   string
	calls *calls
}

func startFakePair(t *testing.T, vfsPerGPU int, vfTopology bool) *fakePair {
	t.Helper()
	dir, err := os.MkdirTemp(scratch, "")
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Start(dir, node.Options{NUMA: twoNUMANodes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	})
	pair := &fakePair{Node: n, dir: dir, calls: &calls{}}
	gpus := &fakePlugin{resource: fakeGPU, devices: fakeDevices("gpu", 4, true), calls: pair.calls}
	vfs := &fakePlugin{resource: fakeVF, devices: fakeDevices("vf", 4*vfsPerGPU, vfTopology), calls: pair.calls}
	for _, plugin := range []*fakePlugin{gpus, vfs} {
		plugin.run(t, dir)
		if err := n.WaitAllocatable(deadline(t), plugin.resource, len(plugin.devices)); err != nil {
			t.Fatal(err)
		}
	}
	return pair
}

var twoNUMANodes = []node.NUMA{{ID: 0, Distances: []uint64{10, 32}}, {ID: 1, Distances: []uint64{32, 10}}}

// deadline bounds every wait of these tests: nothing here takes longer unless it hangs.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// request is a pod with one container.
func request(name string, gpus, vfs int) *v1.Pod {
	return node.Pod(name, nil, []v1.Container{node.Container("app", map[string]int{fakeGPU: gpus, fakeVF: vfs})})
}

func TestNodeAsksResourcesInBothOrders(t *testing.T) {
	pair := startFakePair(t, 1, true)
	seen := map[string]bool{}
	for i := 0; len(seen) < 2; i++ {
		if i == 200 {
			t.Fatalf("200 admissions in one order only: %v", seen)
		}
		pod := request(fmt.Sprint("order-", i), 1, 1)
		if err := pair.Admit(pod); err != nil {
			t.Fatal(err)
		}
		seen[pair.calls.take()[0]] = true
		if err := pair.Remove(pod); err != nil {
			t.Fatal(err)
		}
	}
}

// The restricted policy wants the same NUMA nodes from every resource, and as few as the resource needs on an
// empty machine. Eight GPUs need both nodes; eight VFs do too when there are eight, but not when there are
// thirty-two.
func TestNodeAdmitsWhatRestrictedAllows(t *testing.T) {
	for _, c := range []struct {
		vfsPerGPU  int
		vfTopology bool
		size       int
		nodes      []int // nil: refused
	}{
		{vfsPerGPU: 1, vfTopology: true, size: 1, nodes: []int{0}},
		{vfsPerGPU: 1, vfTopology: true, size: 4, nodes: []int{0}},
		{vfsPerGPU: 1, vfTopology: true, size: 8, nodes: []int{0, 1}},
		{vfsPerGPU: 4, vfTopology: true, size: 4, nodes: []int{0}},
		{vfsPerGPU: 4, vfTopology: true, size: 5},
		{vfsPerGPU: 4, vfTopology: true, size: 8},
		{vfsPerGPU: 4, vfTopology: false, size: 8, nodes: []int{0, 1}},
	} {
		t.Run(fmt.Sprintf("%d+%d, %d VFs per GPU, topology %t", c.size, c.size, c.vfsPerGPU, c.vfTopology),
			func(t *testing.T) {
				pair := startFakePair(t, c.vfsPerGPU, c.vfTopology)
				pod := request("pod", c.size, c.size)
				err := pair.Admit(pod)
				if c.nodes == nil {
					wantRejected(t, err, "TopologyAffinityError")
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := pair.Affinity(pod, "app"); !slices.Equal(got, c.nodes) {
					t.Errorf("affinity %v, want %v", got, c.nodes)
				}
				wantDevices(t, pair, pod, c.size)
			})
	}
}

func wantRejected(t *testing.T, err error, reason string) {
	t.Helper()
	var rejection *node.Rejection
	if !errors.As(err, &rejection) || rejection.Reason != reason {
		t.Errorf("error %v, want rejection with %s", err, reason)
	}
}

// wantDevices checks that the container holds the devices and that it would see the same ones when it starts.
func wantDevices(t *testing.T, pair *fakePair, pod *v1.Pod, size int) {
	t.Helper()
	response, err := pair.Response(t.Context(), pod, "app")
	if err != nil {
		t.Fatal(err)
	}
	for _, resource := range []string{fakeGPU, fakeVF} {
		held := pair.Devices(pod, "app")[resource]
		if len(held) != size {
			t.Errorf("holds %d of %s, want %d", len(held), resource, size)
		}
		for _, id := range held {
			if response.Env[id] != resource {
				t.Errorf("%s is missing from the container's environment", id)
			}
		}
	}
}

func TestNodeFreesDevicesOfRemovedPods(t *testing.T) {
	pair := startFakePair(t, 1, true)
	for i := range 3 {
		pod := request(fmt.Sprint("all-", i), 8, 8)
		if err := pair.Admit(pod); err != nil {
			t.Fatal(err)
		}
		wantRejected(t, pair.Admit(request(fmt.Sprint("more-", i), 1, 1)), "TopologyAffinityError")
		if err := pair.Remove(pod); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNodeGivesAppsTheDevicesOfInitContainers(t *testing.T) {
	pair := startFakePair(t, 1, true)
	one := map[string]int{fakeGPU: 1, fakeVF: 1}
	pod := node.Pod("pod", []v1.Container{node.Container("init", one)},
		[]v1.Container{node.Container("app", one)})
	if err := pair.Admit(pod); err != nil {
		t.Fatal(err)
	}
	for _, resource := range []string{fakeGPU, fakeVF} {
		init, app := pair.Devices(pod, "init")[resource], pair.Devices(pod, "app")[resource]
		if !slices.Equal(init, app) {
			t.Errorf("%s: init container %v, app container %v", resource, init, app)
		}
	}
}

// While the second resource is asked, PodResources already shows the devices of the first with their owner.
// That is what tells a coordinator for whom it is asked.
func TestPodResourcesShowsPodDuringAdmission(t *testing.T) {
	pair := startFakePair(t, 1, true)
	lister := podResourcesClient(t, pair.dir)
	seen := map[int]bool{} // numbers of devices held by the pod when the third resource was asked
	third := &fakePlugin{
		resource: "example.com/third", devices: fakeDevices("third", 2, true), calls: pair.calls,
	}
	third.prefer = func(available, _ []string, size int) []string {
		if list, err := lister.List(deadline(t), &podresources.ListPodResourcesRequest{}); err == nil {
			seen[len(list.PodResources[0].Containers[0].Devices)] = true
		}
		return available[:size]
	}
	third.run(t, pair.dir)
	if err := pair.WaitAllocatable(deadline(t), third.resource, len(third.devices)); err != nil {
		t.Fatal(err)
	}
	for i := 0; !seen[0] || !seen[1]; i++ {
		if i == 200 {
			t.Fatalf("200 admissions, devices held when the third resource was asked: %v, want 0 and 1", seen)
		}
		pod := node.Pod(fmt.Sprint("pod-", i), nil,
			[]v1.Container{node.Container("app", map[string]int{fakeGPU: 1, third.resource: 1})})
		if err := errors.Join(pair.Admit(pod), pair.Remove(pod)); err != nil {
			t.Fatal(err)
		}
	}
}

// A restarted kubelet remembers what running pods hold, and asks nobody for it.
func TestNodeRemembersDevicesOverRestart(t *testing.T) {
	pair := startFakePair(t, 1, true)
	pod := request("pod", 2, 2)
	if err := pair.Admit(pod); err != nil {
		t.Fatal(err)
	}
	before := pair.Devices(pod, "app")
	pair.calls.take()
	if _, err := pair.Restart(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, pair.Devices(pod, "app")); diff != "" {
		t.Errorf("devices before and after the restart (-before +after):\n%s", diff)
	}
	if asked := pair.calls.take(); len(asked) > 0 {
		t.Errorf("asked %v again", asked)
	}
	// no plugin has registered yet
	wantRejected(t, pair.Admit(request("late", 1, 1)), "UnexpectedAdmissionError")
}

func TestPodResourcesIsLimited(t *testing.T) {
	pair := startFakePair(t, 1, true)
	lister := podResourcesClient(t, pair.dir)
	refused := 0
	for range 60 {
		_, err := lister.List(deadline(t), &podresources.ListPodResourcesRequest{})
		if status.Code(err) == codes.ResourceExhausted {
			refused++
		}
	}
	if refused == 0 {
		t.Error("60 calls back to back, none refused")
	}
}

func podResourcesClient(t *testing.T, dir string) podresources.PodResourcesListerClient {
	t.Helper()
	socket := "unix:" + filepath.Join(dir, "pod-resources", "kubelet.sock")
	conn, err := grpc.NewClient(socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return podresources.NewPodResourcesListerClient(conn)
}
