// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	pods "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/test/apiserver"
	"github.com/tandem-k8s/tandem/test/apiserver/client"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	standin "github.com/tandem-k8s/tandem/test/podresources"
)

// migrating is a node whose GPUs "a" and "b" pods may have from device plugins, with a kubelet that says what
// a test tells it.
type migrating struct {
	podresources.UnimplementedPodResourcesListerServer
	pods.UnimplementedPodsServer
	*viewer
	t      *testing.T
	server *apiserver.Server

	mu       sync.Mutex
	listed   []*podresources.PodResources
	lists    int
	known    []*corev1.Pod // of the Pods API
	starting bool          // the kubelet does not know all its pods
}

func newMigrating(t *testing.T) *migrating {
	t.Helper()
	m := &migrating{t: t, server: apiserver.New()}
	config := Config{
		KubeletDir: kubelettest.Dir(t), Client: client.New(m.server),
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	m.viewer = newViewer(newParts(config))
	for _, id := range []string{"a", "b"} {
		m.machine.GPUs = append(m.machine.GPUs, pool.GPU{Device: gpu.Device{ID: id}})
	}
	standin.Serve(t, m.config.KubeletDir, m)
	return m
}

// servePodsAPI makes the kubelet one of 1.37.
func (m *migrating) servePodsAPI() {
	standin.Listen(m.t, filepath.Join(m.config.KubeletDir, "pods-api/pods-api.sock"), func(g *grpc.Server) {
		pods.RegisterPodsServer(g, m)
	})
}

func (m *migrating) List(
	context.Context, *podresources.ListPodResourcesRequest,
) (*podresources.ListPodResourcesResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lists++
	return &podresources.ListPodResourcesResponse{PodResources: m.listed}, nil
}

func (m *migrating) Get(
	_ context.Context, asked *podresources.GetPodResourcesRequest,
) (*podresources.GetPodResourcesResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, pod := range m.listed {
		if pod.Name == asked.PodName {
			return &podresources.GetPodResourcesResponse{PodResources: pod}, nil
		}
	}
	return nil, fmt.Errorf("pod %s in namespace %s not found", asked.PodName, asked.PodNamespace)
}

func (m *migrating) ListPods(context.Context, *pods.ListPodsRequest) (*pods.ListPodsResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.starting {
		return nil, status.Error(codes.FailedPrecondition, "Kubelet is initializing")
	}
	answer := &pods.ListPodsResponse{}
	for _, pod := range m.known {
		encoded, err := pod.Marshal()
		if err != nil {
			return nil, err
		}
		answer.Pods = append(answer.Pods, encoded)
	}
	return answer, nil
}

func (m *migrating) change(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
}

// record writes the kubelet's record of devices, by UID of the pod; "a::1" is a replica of GPU a.
func (m *migrating) record(devices map[string]string) {
	m.t.Helper()
	var entries []string
	for _, uid := range slices.Sorted(maps.Keys(devices)) {
		entries = append(entries, fmt.Sprintf(`{"PodUID":%q,"ContainerName":"main","ResourceName":"amd.com/gpu",`+
			`"DeviceIDs":{"0":[%q]}}`, uid, devices[uid]))
	}
	name := kubelet.CheckpointPath(m.config.KubeletDir)
	if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
		m.t.Fatal(err)
	}
	content := `{"Data":{"PodDeviceEntries":[` + strings.Join(entries, ",") + `],"RegisteredDevices":{}}}`
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// shown is a pod in PodResources.
func shown(name, id string) *podresources.PodResources {
	return &podresources.PodResources{
		Namespace: "team", Name: name, Containers: []*podresources.ContainerResources{{
			Name:    "main",
			Devices: []*podresources.ContainerDevices{{ResourceName: "amd.com/gpu", DeviceIds: []string{id}}},
		}},
	}
}

func podWith(name, uid string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(uid)}}
}

// holds is that after some looks these devices are held, "a by team/old-0" or "a by UID 1".
func (m *migrating) holds(what string, want ...string) {
	m.t.Helper()
	for range 5 {
		m.viewer.holders.updateHolders(m.t.Context(), m.machine)
		var got []string
		for _, g := range withHolders(m.machine, m.viewer.holders.holders.Get()).GPUs {
			if who, _, _ := strings.Cut(g.Held, ", "); who != "" {
				who = strings.TrimPrefix(strings.TrimPrefix(who, "pod "), "a pod with ")
				got = append(got, g.ID+" by "+who)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			m.t.Fatalf("%s: held are %q, want %q", what, got, want)
		}
	}
}

func (m *migrating) remove(name string) { apiserver.Remove[*corev1.Pod](m.server, "team", name) }

// On a kubelet without Pods API a device of the record is free once the API server says that its pod is gone,
// and not because the kubelet does not show the pod.
func TestHeldByTheRecord(t *testing.T) {
	m := newMigrating(t)
	m.holds("no record")
	m.record(map[string]string{"1": "a::1", "2": "b", "3": "of nobody here"})
	m.server.Put(podWith("old-0", "1"))
	m.change(func() { m.listed = []*podresources.PodResources{shown("old-0", "a::1"), shown("old-1", "b")} })
	m.holds("old-1 is not confirmed", "a by team/old-0", "b by UID 2")
	m.change(func() { m.listed = nil })
	m.holds("the kubelet does not know its pods yet", "a by team/old-0", "b by UID 2")
	m.server.Leave()
	m.holds("nor does the API server tell", "a by team/old-0", "b by UID 2")
	m.server.Heal()
	m.remove("old-0")
	m.holds("old-0 is gone", "b by UID 2")
	m.server.Leave()
	m.holds("and stays so while nobody can be asked", "b by UID 2")
	m.server.Heal()
	m.server.Put(podWith("old-0", "another"))
	m.holds("and another one has its name", "b by UID 2")
	m.record(map[string]string{"1": "a::1"})
	m.holds("the kubelet wrote its record without the other one")
	m.record(nil)
	m.holds("nothing is recorded any more")
	if len(m.viewer.holders.recorded.pods) > 0 {
		t.Errorf("pods that are not in the record: %v", m.viewer.holders.recorded.pods)
	}
}

// A forced deletion removes a pod from the API server at once. The pod's device is free after the grace
// period of the containers, and not while the kubelet lists the pod with the device.
func TestForcedDeletion(t *testing.T) {
	m := newMigrating(t)
	now := time.Now()
	m.viewer.holders.recorded.now = func() time.Time { return now }
	m.record(map[string]string{"1": "a"})
	pod := podWith("old-0", "1")
	pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
	m.server.Put(pod)
	m.change(func() { m.listed = []*podresources.PodResources{shown("old-0", "a")} })
	m.holds("while the pod runs", "a by team/old-0")
	m.remove("old-0")
	m.holds("after the deletion", "a by team/old-0")
	now = now.Add(time.Hour)
	m.holds("while the kubelet lists the pod", "a by team/old-0")
	m.change(func() { m.listed = nil })
	m.holds("after that")

	m.record(map[string]string{"2": "a"})
	pod.UID = "2"
	m.server.Put(pod)
	m.change(func() { m.listed = []*podresources.PodResources{shown("old-0", "a")} })
	m.holds("the next pod runs", "a by team/old-0")
	m.change(func() { m.listed = nil })
	m.remove("old-0")
	m.server.Put(podWith("old-0", "3"))
	m.holds("the grace period has begun", "a by team/old-0")
	now = now.Add(29 * time.Second)
	m.holds("nor is it over", "a by team/old-0")
	now = now.Add(time.Second)
	m.holds("after the grace period")
}

// PodResources is asked no more than is needed: List is not harmless.
func TestListsOfTheRecord(t *testing.T) {
	m := newMigrating(t)
	m.record(map[string]string{"1": "a"})
	m.server.Put(podWith("old-0", "1"))
	m.change(func() { m.listed = []*podresources.PodResources{shown("old-0", "a")} })
	m.holds("named", "a by team/old-0")
	m.servePodsAPI()
	m.change(func() { m.known = []*corev1.Pod{podWith("old-0", "1")} })
	m.record(map[string]string{"2": "b"})
	m.holds("of a kubelet with Pods API")
	if m.lists != 1 {
		t.Errorf("%d lists", m.lists)
	}
}

// A static pod has another UID in the API server. What the mirror says of itself names nobody: anybody can
// write that.
func TestStaticPodInTheRecord(t *testing.T) {
	m := newMigrating(t)
	m.record(map[string]string{"hash": "a"})
	mirror := podWith("static-node", "uid")
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
	mirror.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "node"}}
	m.server.Put(mirror)
	m.change(func() { m.listed = []*podresources.PodResources{shown("static-node", "a")} })
	m.holds("mirrored", "a by UID hash")
	m.remove("static-node")
	m.holds("somebody deleted the mirror", "a by UID hash")
}

// A list of the kubelet's without the driver's own pod says nothing.
func TestListWithoutTheDriver(t *testing.T) {
	m := newMigrating(t)
	m.viewer.holders.recorded.ownUID = "driver"
	m.servePodsAPI()
	m.record(map[string]string{"1": "a"})
	m.holds("an empty list", "a by UID 1")
	m.change(func() { m.known = []*corev1.Pod{podWith("other", "2")} })
	m.holds("a list of some pods", "a by UID 1")
	m.change(func() { m.known = append(m.known, podWith("driver-0", "driver")) })
	m.holds("the whole list")
}

// A kubelet with Pods API says which pods have ended, once it knows all.
func TestHeldByThePodsAPI(t *testing.T) {
	m := newMigrating(t)
	m.servePodsAPI()
	m.record(map[string]string{"1": "a", "2": "b"})
	old := podWith("old-0", "1")
	m.change(func() { m.starting = true })
	m.holds("it starts", "a by UID 1", "b by UID 2")
	m.change(func() { m.starting, m.known = false, []*corev1.Pod{old} })
	m.holds("the other one is gone", "a by team/old-0")
	m.change(func() { m.starting = true })
	m.holds("it starts again", "a by team/old-0")
	evicted := old.DeepCopy()
	evicted.Status.Phase = corev1.PodFailed
	evicted.Status.ContainerStatuses = []corev1.ContainerStatus{{
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
	m.change(func() { m.starting, m.known = false, []*corev1.Pod{evicted} })
	m.holds("it is evicted, and runs", "a by team/old-0")
	ended := old.DeepCopy()
	ended.Status.Phase = corev1.PodSucceeded
	m.change(func() { m.known = []*corev1.Pod{ended} })
	m.holds("it has ended, and is there")
}
