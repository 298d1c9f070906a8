// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/podsapi"
	"github.com/tandem-k8s/tandem/test/programs"
)

const gpuResource, vfResource = "amd.com/gpu", "tandem.dev/rdma_vf"

// pair is the two device plugins as processes on a recorded machine, with a kubelet that admits the pods of a
// test.
type pair struct {
	podresources.UnimplementedPodResourcesListerServer
	t       *testing.T
	dir     string
	plugins map[string]*kubelettest.Plugin // by resource
	free    map[string][]string            // by resource

	mu       sync.Mutex
	all      []*podresources.ContainerDevices // that the kubelet has been offered
	pods     []corev1.Pod
	admitted []*podresources.PodResources // of the pods, with the devices that they have so far
}

// startPair lays a machine out and starts the plugins on it.
func startPair(t *testing.T, machine string, vfs int) *pair {
	t.Helper()
	chromium(t) // or skip, before there is work
	programs.Build(t, "tandem-gpu", "tandem-rdma")
	m, err := machines.Load(machine, vfs)
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{
		t: t, dir: kubelettest.Dir(t), plugins: map[string]*kubelettest.Plugin{}, free: map[string][]string{},
	}
	config := `{"resourceList": [{"resourceName": "rdma_vf", "resourcePrefix": "tandem.dev", "selectors": {"vendors": ["15b3"]}}]}`
	if err := errors.Join(os.CopyFS(p.path("sys"), m.FS()), os.Mkdir(p.path("dev"), 0o700),
		os.WriteFile(p.path("config.json"), []byte(config), 0o600),
		os.Mkdir(p.path("pod-resources"), 0o750)); err != nil {
		t.Fatal(err)
	}
	kubelet := kubelettest.Start(t, p.dir)
	p.checkpoint()
	stop, err := podsapi.Serve(p.dir, p.list)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	listener, err := net.Listen("unix", p.path("pod-resources/kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, p)
	go func() { _ = server.Serve(listener) }() // until stopped
	t.Cleanup(server.Stop)
	p.run(kubelet, "tandem-gpu")
	p.run(kubelet, "tandem-rdma", "--config-file="+p.path("config.json"), "--devinfo-dir="+p.path("devinfo"))
	return p
}

func (p *pair) path(name string) string { return filepath.Join(p.dir, name) }

// run starts a plugin and waits for its devices.
func (p *pair) run(kubelet *kubelettest.Kubelet, program string, flags ...string) {
	p.t.Helper()
	args := append([]string{
		"--sysfs-root=" + p.path("sys"), "--dev-root=" + p.path("dev"), "--kubelet-dir=" + p.dir,
		"--run-dir=" + p.path("run"),
	}, flags...)
	cmd := exec.Command(filepath.Join(programs.Build(p.t, program), program), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill() // gone where it failed
		_ = cmd.Wait()
	})
	plugin := kubelettest.Await(p.t, kubelet.Plugins)
	name := plugin.Request.GetResourceName()
	p.plugins[name] = plugin
	for _, d := range kubelettest.Await(p.t, plugin.Lists) {
		p.free[name] = append(p.free[name], d.GetID())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, &podresources.ContainerDevices{
		ResourceName: name, DeviceIds: slices.Clone(p.free[name]),
	})
}

// admit gives a container devices as the kubelet does, GPUs first, each half of those that it offers.
func (p *pair) admit(pod string, gpus, vfs []string) {
	p.t.Helper()
	container := &podresources.ContainerResources{Name: "worker"}
	p.mu.Lock()
	p.pods = append(p.pods, newPod(pod, len(gpus)))
	p.admitted = append(p.admitted, &podresources.PodResources{
		Namespace: "team-a", Name: pod, Containers: []*podresources.ContainerResources{container},
	})
	p.mu.Unlock()
	for _, half := range []struct {
		resource string
		offered  []string
	}{{gpuResource, gpus}, {vfResource, vfs}} {
		chosen, err := p.plugins[half.resource].Prefer(p.t.Context(), half.offered, nil, len(gpus))
		if err == nil {
			_, err = p.plugins[half.resource].Allocate(p.t.Context(), chosen...)
		}
		if err != nil {
			p.t.Fatal(err)
		}
		p.free[half.resource] = slices.DeleteFunc(p.free[half.resource], func(id string) bool {
			return slices.Contains(chosen, id)
		})
		p.mu.Lock()
		container.Devices = append(container.Devices, &podresources.ContainerDevices{
			ResourceName: half.resource, DeviceIds: chosen,
		})
		p.mu.Unlock()
	}
	p.checkpoint()
}

// newPod is a pod whose container asks for so many GPUs and as many VFs.
func newPod(name string, count int) corev1.Pod {
	devices := *resource.NewQuantity(int64(count), resource.DecimalSI)
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "worker",
			Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{gpuResource: devices, vfResource: devices},
			},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// list is what the kubelet's Pods API has.
func (p *pair) list() []corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.pods)
}

// checkpoint writes who has which devices, as the kubelet does
// (pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go).
func (p *pair) checkpoint() {
	p.t.Helper()
	type entry struct {
		PodUID, ContainerName, ResourceName string
		DeviceIDs                           map[int][]string
	}
	var entries []entry
	for _, pod := range p.admitted {
		for _, d := range pod.GetContainers()[0].GetDevices() {
			entries = append(entries, entry{pod.GetName(), "worker", d.GetResourceName(),
				map[int][]string{-1: d.GetDeviceIds()}})
		}
	}
	text, err := json.Marshal(map[string]any{"Data": map[string]any{"PodDeviceEntries": entries}})
	if err == nil {
		err = os.WriteFile(p.path("checkpoint"), text, 0o600)
	}
	if err == nil {
		there := filepath.Join(kubelettest.Plugins(p.dir), "kubelet_internal_checkpoint")
		err = os.Rename(p.path("checkpoint"), there)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// List implements the kubelet's PodResources.
func (p *pair) List(
	context.Context, *podresources.ListPodResourcesRequest,
) (*podresources.ListPodResourcesResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	answer := &podresources.ListPodResourcesResponse{}
	for _, pod := range p.admitted {
		answer.PodResources = append(answer.PodResources, proto.Clone(pod).(*podresources.PodResources))
	}
	return answer, nil
}

// GetAllocatableResources tells that the kubelet has the devices of both plugins.
func (p *pair) GetAllocatableResources(
	context.Context, *podresources.AllocatableResourcesRequest,
) (*podresources.AllocatableResourcesResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &podresources.AllocatableResourcesResponse{Devices: slices.Clone(p.all)}, nil
}

// The picture of the documents, of plugins that run: two pods that have their pairs, and one to which the
// kubelet offered a GPU and a VF apart.
func TestDocuments(t *testing.T) {
	p := startPair(t, "oci-mi300x-derived", 4)
	offered := func(resource string, ids ...string) []string {
		return slices.DeleteFunc(slices.Clone(p.free[resource]), func(id string) bool {
			return !slices.Contains(ids, id)
		})
	}
	p.admit("train-0", offered(gpuResource, "0000:11:00.0", "0000:2f:00.0"), p.free[vfResource])
	p.admit("train-1", offered(gpuResource, "0000:8b:00.0", "0000:aa:00.0", "0000:c2:00.0"), p.free[vfResource])
	p.admit("serve", offered(gpuResource, "0000:46:00.0"), offered(vfResource, "0000:58:00.1"))
	n := &node{t: t, dir: p.dir}
	url, _ := n.page(":0")
	b := open(t, "light")
	b.do(chromedp.Navigate(url))
	b.await(`document.getElementById("live").textContent.startsWith("as of")`)
	b.await(`picture.innerHTML.includes("degraded containers 1")`) // once the plugins have looked at who has what
	for _, want := range []string{
		"GPUs free 2/8", "VFs free 26/32", "kubelet up", ">Switch 0<", "stranded: free, but no partner",
		"team-a/train-1/worker",
	} {
		if !value[bool](b, fmt.Sprintf(`picture.innerHTML.includes(%q)`, want)) {
			t.Errorf("no %q", want)
		}
	}
	if drawn := value[int](b, `document.querySelectorAll(".wide .cell.stranded[data-key]").length`); drawn != 19 {
		t.Errorf("%d stranded VFs are drawn, want those of the 6 switches without a free GPU: 19", drawn)
	}
	b.document("status")
	b.quiet()
}
