// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	records "github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/playground/kubelet"
)

// calls are the calls of plugins, in order.
type calls struct {
	mu   sync.Mutex
	list []string
}

func (c *calls) add(words ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, strings.Join(words, " "))
}

// plugin prefers the last of the available devices, and refuses "bad" ones.
type plugin struct {
	v1beta1.UnimplementedDevicePluginServer
	name    string
	devices []*v1beta1.Device
	calls   *calls
	server  *grpc.Server
}

func (p *plugin) GetDevicePluginOptions(
	context.Context, *v1beta1.Empty,
) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

func (p *plugin) ListAndWatch(_ *v1beta1.Empty, stream v1beta1.DevicePlugin_ListAndWatchServer) error {
	if err := stream.Send(&v1beta1.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *plugin) GetPreferredAllocation(
	_ context.Context, r *v1beta1.PreferredAllocationRequest,
) (*v1beta1.PreferredAllocationResponse, error) {
	q := r.GetContainerRequests()[0]
	p.calls.add(append([]string{"prefer", p.name}, q.GetAvailableDeviceIDs()...)...)
	chosen := q.GetAvailableDeviceIDs()[len(q.GetAvailableDeviceIDs())-int(q.GetAllocationSize()):]
	return &v1beta1.PreferredAllocationResponse{
		ContainerResponses: []*v1beta1.ContainerPreferredAllocationResponse{{DeviceIDs: chosen}},
	}, nil
}

func (p *plugin) Allocate(_ context.Context, r *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	ids := r.GetContainerRequests()[0].GetDevicesIds()
	p.calls.add(append([]string{"allocate", p.name}, ids...)...)
	if slices.Contains(ids, "bad") {
		return nil, errors.New("bad device")
	}
	return &v1beta1.AllocateResponse{ContainerResponses: []*v1beta1.ContainerAllocateResponse{{
		Envs: map[string]string{p.name: strings.Join(ids, ",")},
	}}}, nil
}

// start serves and registers the plugin.
func (p *plugin) start(t *testing.T, dir string) {
	t.Helper()
	endpoint := p.name + ".sock"
	listener, err := net.Listen("unix", filepath.Join(kubelettest.Plugins(dir), endpoint))
	if err != nil {
		t.Fatal(err)
	}
	p.server = grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(p.server, p)
	var served sync.WaitGroup
	served.Go(func() { _ = p.server.Serve(listener) }) // until stopped
	t.Cleanup(func() { p.server.Stop(); served.Wait() })
	conn, err := kubelet.Dial(filepath.Join(kubelettest.Plugins(dir), "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := v1beta1.NewRegistrationClient(conn).Register(t.Context(), &v1beta1.RegisterRequest{
		Version: v1beta1.Version, Endpoint: endpoint, ResourceName: resource(p.name),
	}); err != nil {
		t.Fatal(err)
	}
}

func resource(name string) string { return "x.y/" + name }

// on returns healthy devices of a NUMA node, or without one for -1.
func on(node int64, ids ...string) (devices []*v1beta1.Device) {
	for _, id := range ids {
		d := &v1beta1.Device{ID: id, Health: v1beta1.Healthy}
		if node >= 0 {
			d.Topology = &v1beta1.TopologyInfo{Nodes: []*v1beta1.NUMANode{{ID: node}}}
		}
		devices = append(devices, d)
	}
	return devices
}

// node is a kubelet with plugins for GPUs on two NUMA nodes, and for VFs without NUMA nodes.
type node struct {
	*kubelet.Kubelet
	t         *testing.T
	dir       string
	gpus, vfs *plugin
	calls     calls
}

func startNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, dir: kubelettest.Dir(t)}
	var err error
	if n.Kubelet, err = kubelet.Start(n.dir, model.Rule{Policy: model.Restricted}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Stop)
	n.gpus = &plugin{name: "gpu", devices: slices.Concat(on(0, "g0", "g1"), on(1, "g2", "g3")), calls: &n.calls}
	n.vfs = &plugin{name: "vf", devices: on(-1, "bad", "v1", "v2"), calls: &n.calls}
	n.gpus.start(t, n.dir)
	n.vfs.start(t, n.dir)
	n.await()
	return n
}

func (n *node) await() {
	n.t.Helper()
	if err := n.Await(n.t.Context(), resource("gpu"), resource("vf")); err != nil {
		n.t.Fatal(err)
	}
}

// admit admits a pod that requests GPUs, then VFs. It returns the kubelet's reason, "" for an admission.
func (n *node) admit(name string, gpus, vfs int) string {
	pod := &kubelet.Pod{Name: name, Requests: []kubelet.Request{{Resource: resource("gpu"), Count: gpus}}}
	if vfs > 0 {
		pod.Requests = append(pod.Requests, kubelet.Request{Resource: resource("vf"), Count: vfs})
	}
	if err := n.Admit(n.t.Context(), pod); err != nil {
		return err.Error()
	}
	return ""
}

func (n *node) devices(name string) map[string][]string {
	grant, _ := n.Grant(name)
	return grant.Devices
}

// checkpoint returns the devices of each container by the checkpoint.
func (n *node) checkpoint() map[string]records.Devices {
	n.t.Helper()
	c, err := records.ReadCheckpoint(n.dir)
	if err != nil {
		n.t.Fatal(err)
	}
	return c.Containers()
}

// TestOrder: the calls of an admission come in the order of the kubelet, and its records have the devices.
func TestOrder(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	if why := n.admit("a", 1, 1); why != "" {
		t.Fatal(why)
	}
	if diff := cmp.Diff([]string{
		"prefer gpu g0 g1", "allocate gpu g1", "prefer vf bad v1 v2", "allocate vf v2",
	}, n.calls.list); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	held := records.Devices{resource("gpu"): {"g1"}, resource("vf"): {"v2"}}
	if diff := cmp.Diff(map[string]records.Devices{"uid-1/main": held}, n.checkpoint()); diff != "" {
		t.Errorf("checkpoint (-want +got):\n%s", diff)
	}
	grant, _ := n.Grant("a")
	if diff := cmp.Diff([]string{"gpu=g1", "vf=v2"}, grant.Environment); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	n.checkServed(held)
}

// checkServed compares the answers of PodResources and of the Pods API for pod a.
func (n *node) checkServed(held records.Devices) {
	n.t.Helper()
	client, err := records.NewPodResources(n.dir)
	if err != nil {
		n.t.Fatal(err)
	}
	defer client.Close()
	pod := records.Pod{Namespace: kubelet.Namespace, Name: "a"}
	view, err := client.List(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	got := view.Containers[records.Container{Pod: pod, Name: kubelet.Container}]
	if diff := cmp.Diff(held, got); diff != "" {
		n.t.Errorf("PodResources List (-want +got):\n%s", diff)
	}
	one, err := client.Get(n.t.Context(), pod)
	if err != nil || len(one.Pods) != 1 {
		n.t.Errorf("PodResources Get: %v, %v", one.Pods, err)
	}
	none, err := client.Get(n.t.Context(), records.Pod{Namespace: "x", Name: "a"})
	if err != nil || none.Pods != nil {
		n.t.Errorf("PodResources Get of another namespace: %v, %v", none.Pods, err)
	}
	all, err := client.Allocatable(n.t.Context())
	if err != nil || len(all[resource("gpu")]) != 4 || len(all[resource("vf")]) != 3 {
		n.t.Errorf("allocatable: %v, %v", all, err)
	}
	var pods []*corev1.Pod
	err = records.ListPods(n.t.Context(), n.dir, func(pod *corev1.Pod) { pods = append(pods, pod.DeepCopy()) })
	if err != nil || len(pods) != 1 || pods[0].Name != "a" ||
		pods[0].Spec.Containers[0].Resources.Limits.Name("x.y/gpu", "").Value() != 1 {
		n.t.Errorf("Pods API: %v, %v", pods, err)
	}
}

// TestRefusals: the kubelet's reasons. A rejected pod holds nothing.
func TestRefusals(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	for _, c := range []struct {
		gpus, vfs int
		want      string
	}{
		{3, 1, ""},
		{1, 3, "UnexpectedAdmissionError: allocate x.y/vf: rpc error: code = Unknown desc = bad device"},
		{5, 0, "TopologyAffinityError: Resources cannot be allocated with Topology locality"},
		{1, 4, "UnexpectedAdmissionError: requested 4 x.y/vf, available 3"},
		{4, 0, ""},
	} {
		if got := n.admit("a", c.gpus, c.vfs); got != c.want {
			t.Errorf("%d GPUs and %d VFs: %q, want %q", c.gpus, c.vfs, got, c.want)
		}
		if uid, _ := n.UID("a"); uid == kubelet.Gone {
			t.Errorf("%d GPUs and %d VFs: the pod has no UID", c.gpus, c.vfs)
		}
		if c.want == "" {
			if err := n.Delete("a"); err != nil {
				t.Error(err)
			}
		}
	}
	if pods := n.Pods(); len(pods) != 0 {
		t.Errorf("pods %v", pods)
	}
	unknown := &kubelet.Pod{Name: "b", Requests: []kubelet.Request{{Resource: "x.y/z", Count: 1}}}
	err := n.Admit(t.Context(), unknown)
	if err == nil || !strings.Contains(err.Error(), "no plugin has registered x.y/z") {
		t.Errorf("a pod with an unknown resource: %v", err)
	}
}

// TestEnd: the devices of an ended pod stay in the checkpoint until the next admission.
func TestEnd(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	if why := n.admit("a", 4, 0); why != "" {
		t.Fatal(why)
	}
	if why := n.admit("a", 1, 0); !strings.Contains(why, "a pod of this name runs") {
		t.Errorf("a second pod of the name: %q", why)
	}
	if err := n.Delete("a"); err != nil {
		t.Fatal(err)
	}
	if held := n.checkpoint(); len(held) != 1 {
		t.Errorf("after the end the checkpoint has %v", held)
	}
	if why := n.admit("b", 2, 0); why != "" {
		t.Fatal(why)
	}
	if held := n.checkpoint(); len(held) != 1 || held["uid-2/main"] == nil {
		t.Errorf("after the next admission the checkpoint has %v", held)
	}
	if err := n.Delete("a"); !errors.Is(err, kubelet.ErrNoPod) {
		t.Errorf("deleted twice: %v", err)
	}
}

// TestRestarts: devices of a plugin that has gone are unhealthy until it registers again, and pods keep their
// devices when plugins and kubelet restart.
func TestRestarts(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	if why := n.admit("a", 1, 1); why != "" {
		t.Fatal(why)
	}
	before := n.devices("a")
	n.vfs.server.Stop()
	if err := n.AwaitLoss(t.Context(), resource("vf")); err != nil {
		t.Fatal(err)
	}
	if why := n.admit("b", 1, 1); why != "UnexpectedAdmissionError: no healthy device of x.y/vf" {
		t.Errorf("without a plugin: %q", why)
	}
	if err := n.Restart(); err != nil {
		t.Fatal(err)
	}
	n.gpus.server.Stop()
	n.gpus.start(t, n.dir)
	n.vfs.start(t, n.dir)
	n.await()
	if diff := cmp.Diff(before, n.devices("a")); diff != "" {
		t.Errorf("devices of the pod (-before +after):\n%s", diff)
	}
	if why := n.admit("b", 3, 1); why != "" {
		t.Errorf("after the restart: %q", why)
	}
}
