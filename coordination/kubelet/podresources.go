package kubelet

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tandem-k8s/tandem/topology"
)

// Pod names a pod.
type Pod struct{ Namespace, Name string }

// Container names a container of a pod.
type Container struct {
	Pod  `json:"pod"` // else its name would be lost in JSON, behind the container's
	Name string       `json:"name"`
}

// String is "namespace/pod/container".
func (c Container) String() string { return c.Namespace + "/" + c.Pod.Name + "/" + c.Name }

// Devices are the device IDs of one container by resource name.
type Devices map[string][]string

// View is one answer of PodResources List: every active pod, those that hold no device included.
type View struct {
	Pods       []Pod
	Containers map[Container]Devices
	Exclusive  topology.CPUSet // that the static CPU policy has given to containers alone
	// Life tells the kubelet that answered from the one that it was before it started again; "" where that is
	// not known. One that has just started lists its pods one by one: it says nothing of those to come.
	Life string
}

// PodResources is a client of the kubelet's PodResources API, version v1.
type PodResources struct {
	client podresources.PodResourcesListerClient
	conn   *connection
}

// DefaultDir is the kubelet's root folder where nothing else is said (--root-dir).
const DefaultDir = "/var/lib/kubelet"

// PodResourcesSocket is where the kubelet of a folder answers PodResources.
func PodResourcesSocket(kubeletDir string) string {
	return filepath.Join(kubeletDir, "pod-resources", "kubelet.sock")
}

// NewPodResources makes a client for the socket below a kubelet folder (/var/lib/kubelet). It connects when
// it is first asked.
func NewPodResources(kubeletDir string) (*PodResources, error) {
	conn, err := dial(PodResourcesSocket(kubeletDir))
	if err != nil {
		return nil, fmt.Errorf("open PodResources client: %w", err)
	}
	return &PodResources{client: podresources.NewPodResourcesListerClient(conn), conn: conn}, nil
}

// Close ends the connection.
func (p *PodResources) Close() error { return p.conn.Close() }

// List asks for all pods and their devices. Where the kubelet's limiter refuses it asks again, until ctx is
// done. Call it only inside a GetPreferredAllocation whose must-include is empty: see the package comment.
func (p *PodResources) List(ctx context.Context) (View, error) {
	answer, err := patiently(ctx, p.conn, func() (*podresources.ListPodResourcesResponse, error) {
		return p.client.List(ctx, &podresources.ListPodResourcesRequest{})
	})
	if err != nil {
		return View{}, fmt.Errorf("list PodResources: %w", err)
	}
	view := newView(answer.GetPodResources()...)
	view.Life = p.conn.life()
	return view, nil
}

// Get asks for one pod; the view is empty where the kubelet knows no such pod, or one that has ended. It may
// be called at any time: unlike List it frees nothing (Get in pkg/kubelet/apis/podresources/server_v1.go).
// Kubelets before 1.34 have it only behind the gate KubeletPodResourcesGet and answer with an error without
// it.
func (p *PodResources) Get(ctx context.Context, pod Pod) (View, error) {
	answer, err := patiently(ctx, p.conn, func() (*podresources.GetPodResourcesResponse, error) {
		return p.client.Get(ctx, &podresources.GetPodResourcesRequest{
			PodNamespace: pod.Namespace, PodName: pod.Name,
		})
	})
	switch {
	case err == nil:
		return newView(answer.GetPodResources()), nil
	case notFound(err):
		return View{}, nil
	default:
		return View{}, fmt.Errorf("get PodResources of %s/%s: %w", pod.Namespace, pod.Name, err)
	}
}

// notFound reports whether an error says that there is no such pod. The kubelet says so with a text and no
// code.
func notFound(err error) bool {
	s, _ := status.FromError(err)
	return s.Code() == codes.NotFound ||
		s.Code() == codes.Unknown && strings.HasSuffix(s.Message(), " not found")
}

func addCPUs(set topology.CPUSet, ids []int64) {
	for _, id := range ids {
		set[int(id)] = true
	}
}

func newView(pods ...*podresources.PodResources) View {
	view := View{Containers: map[Container]Devices{}, Exclusive: topology.CPUSet{}}
	for _, p := range pods {
		pod := Pod{Namespace: p.GetNamespace(), Name: p.GetName()}
		view.Pods = append(view.Pods, pod)
		for _, c := range p.GetContainers() {
			devices := Devices{}
			for _, d := range c.GetDevices() {
				devices[d.GetResourceName()] = append(devices[d.GetResourceName()], d.GetDeviceIds()...)
			}
			view.Containers[Container{Pod: pod, Name: c.GetName()}] = devices
			addCPUs(view.Exclusive, c.GetCpuIds())
		}
	}
	return view
}

// Shows reports whether a view has a container with a device. A view that is nil shows nothing.
func (v *View) Shows(resource, id string) bool {
	if v == nil {
		return false
	}
	_, _, held := v.HolderOf(resource, []string{id})
	return held
}

// HolderOf finds a container that the view shows with one of the devices; of several the first by name.
func (v View) HolderOf(resource string, ids []string) (holder Container, id string, held bool) {
	for c, devices := range v.Containers {
		for _, shown := range devices[resource] {
			if slices.Contains(ids, shown) && (!held || c.String() < holder.String()) {
				holder, id, held = c, shown, true
			}
		}
	}
	return holder, id, held
}
