// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tandem-k8s/tandem/topology"
)

// Pod is the namespace and name of a pod.
type Pod struct{ Namespace, Name string }

// Container is a container of a pod.
type Container struct {
	Pod  `json:"pod"` // with a tag, because JSON drops the name of an embedded field
	Name string       `json:"name"`
}

// String returns "namespace/pod/container".
func (c Container) String() string { return c.Namespace + "/" + c.Pod.Name + "/" + c.Name }

// Devices are the device IDs of one container by resource name.
type Devices map[string][]string

// Device names a device by its resource and its ID.
type Device struct{ Resource, ID string }

// All iterates over the devices, in any order of the resources.
func (d Devices) All() iter.Seq[Device] {
	return func(yield func(Device) bool) {
		for resource, ids := range d {
			for _, id := range ids {
				if !yield(Device{resource, id}) {
					return
				}
			}
		}
	}
}

// Has reports whether a condition holds for any device.
func (d Devices) Has(condition func(Device) bool) bool {
	for device := range d.All() {
		if condition(device) {
			return true
		}
	}
	return false
}

// contains reports whether a set contains a device.
func (d Devices) contains(device Device) bool { return slices.Contains(d[device.Resource], device.ID) }

// HasAll reports whether a set contains all devices of another set.
func (d Devices) HasAll(part Devices) bool {
	return !part.Has(func(device Device) bool { return !d.contains(device) })
}

// HasAny reports whether two sets have a device in common.
func (d Devices) HasAny(other Devices) bool { return other.Has(d.contains) }

// View is one answer of PodResources List, every active pod, including pods without devices; or some pods by
// Get.
type View struct {
	Pods       []Pod
	Containers map[Container]Devices
	Exclusive  topology.CPUSet // CPUs that the static CPU policy has assigned exclusively
	// Life identifies the kubelet process; "" if unknown. A restarted kubelet adds pods one by one, so a missing
	// pod has no meaning.
	Life string
}

// PodResources is a client of the kubelet's PodResources API, version v1.
type PodResources struct {
	client podresources.PodResourcesListerClient
	conn   *connection
	dir    string // of the kubelet
}

// DefaultDir is the kubelet's default root directory (--root-dir).
const DefaultDir = "/var/lib/kubelet"

// PodResourcesSocket returns the PodResources socket below a kubelet directory.
func PodResourcesSocket(kubeletDir string) string {
	return filepath.Join(kubeletDir, "pod-resources", "kubelet.sock")
}

// NewPodResources returns a client for the socket below a kubelet directory (/var/lib/kubelet). The first
// call connects.
func NewPodResources(kubeletDir string) (*PodResources, error) {
	conn, err := dialSocket(PodResourcesSocket(kubeletDir))
	if err != nil {
		return nil, fmt.Errorf("open PodResources client: %w", err)
	}
	return &PodResources{
		client: podresources.NewPodResourcesListerClient(conn), conn: conn, dir: kubeletDir,
	}, nil
}

// Close closes the connection.
func (p *PodResources) Close() error { return p.conn.Close() }

// Life identifies the kubelet process; "" if unknown.
func (p *PodResources) Life() string { return Life(p.dir) }

// Life identifies the kubelet process of a directory; "" if unknown.
func Life(kubeletDir string) string {
	registration := filepath.Join(kubeletDir, "device-plugins", "kubelet.sock")
	return lifeOf(PodResourcesSocket(kubeletDir), registration)
}

// List returns all pods with devices, and repeats rejected calls of the kubelet's rate limiter until ctx is
// done. Must be called only inside a GetPreferredAllocation with an empty must-include: see the package
// comment.
func (p *PodResources) List(ctx context.Context) (View, error) {
	view, err := p.viewAnswer(ctx, podresources.PodResourcesLister_List_FullMethodName,
		&podresources.ListPodResourcesRequest{})
	if err != nil {
		return View{}, fmt.Errorf("list PodResources: %w", err)
	}
	return view, nil
}

// viewAnswer returns the pods in the answer to a call.
func (p *PodResources) viewAnswer(ctx context.Context, method string, question any) (View, error) {
	view := View{Containers: map[Container]Devices{}, Exclusive: topology.CPUSet{}}
	if err := p.conn.splitAnswer(ctx, method, question, view.addPod); err != nil {
		return View{}, err
	}
	view.Life = p.Life()
	return view, nil
}

// Get returns one pod; the view is empty for a missing or ended pod. Get may be called at any time: unlike
// List, Get releases nothing (Get in pkg/kubelet/apis/podresources/server_v1.go). Kubelets before 1.34
// without the feature gate KubeletPodResourcesGet return an error.
func (p *PodResources) Get(ctx context.Context, pod Pod) (View, error) {
	view, err := p.viewAnswer(ctx, podresources.PodResourcesLister_Get_FullMethodName,
		&podresources.GetPodResourcesRequest{PodNamespace: pod.Namespace, PodName: pod.Name})
	switch {
	case err == nil:
		return view, nil
	case notFound(err):
		return View{}, nil
	default:
		return View{}, fmt.Errorf("get PodResources of %s/%s: %w", pod.Namespace, pod.Name, err)
	}
}

// Allocatable returns the kubelet's allocatable devices: all healthy devices, assigned or not. Allocatable
// may be called at any time.
func (p *PodResources) Allocatable(ctx context.Context) (Devices, error) {
	answer, err := p.askDevices(ctx)
	if err != nil {
		return nil, fmt.Errorf("get allocatable devices of PodResources: %w", err)
	}
	devices := Devices{}
	for _, d := range answer.GetDevices() {
		devices[d.GetResourceName()] = append(devices[d.GetResourceName()], d.GetDeviceIds()...)
	}
	return devices, nil
}

// AllocatableCPUs returns the CPUs for exclusive assignment by the static CPU policy, assigned or not: all
// CPUs except the system's reserved CPUs. With another policy the result is empty. AllocatableCPUs may be
// called at any time.
func (p *PodResources) AllocatableCPUs(ctx context.Context) (topology.CPUSet, error) {
	answer, err := p.askDevices(ctx)
	if err != nil {
		return nil, fmt.Errorf("get allocatable CPUs of PodResources: %w", err)
	}
	set := topology.CPUSet{}
	addCPUs(set, answer.GetCpuIds())
	return set, nil
}

func (p *PodResources) askDevices(ctx context.Context) (*podresources.AllocatableResourcesResponse, error) {
	return askPatiently(ctx, p.conn, func() (*podresources.AllocatableResourcesResponse, error) {
		return p.client.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	})
}

// notFound reports whether an error means a missing pod. The kubelet returns a text without a code.
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

// maxIdle limits the containers without devices of a pod, of which only the names are of use.
const maxIdle = 256

// addPod adds a pod, encoded as PodResources of the kubelet's API. The numbers of the fields are those of
// api.proto in k8s.io/kubelet/pkg/apis/podresources/v1.
func (v *View) addPod(message []byte) error {
	var pod Pod
	var containers [][]byte
	err := eachField(message, func(field protowire.Number, value []byte) error {
		switch field {
		case 1:
			pod.Name = string(value)
		case 2:
			pod.Namespace = string(value)
		case 3:
			containers = append(containers, value)
		}
		return nil
	})
	v.Pods = append(v.Pods, pod)
	idle := 0
	for _, c := range containers {
		if err != nil {
			break
		}
		var name []byte
		devices := Devices{}
		err = eachField(c, func(field protowire.Number, value []byte) error {
			switch field {
			case 1:
				name = value
			case 2:
				return devices.addResource(value)
			case 3:
				return v.addCPUs(value)
			}
			return nil
		})
		if len(devices) == 0 {
			idle++
		}
		if len(devices) > 0 || idle <= maxIdle {
			v.Containers[Container{Pod: pod, Name: string(name)}] = devices
		}
	}
	if err != nil {
		return fmt.Errorf("decode the devices of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// addResource adds devices of a resource, encoded as ContainerDevices.
func (d Devices) addResource(message []byte) error {
	var resource string
	var ids []string
	err := eachField(message, func(field protowire.Number, value []byte) error {
		switch field {
		case 1:
			resource = string(value)
		case 2:
			ids = append(ids, string(value))
		}
		return nil
	})
	d[resource] = append(d[resource], ids...)
	return err
}

// addCPUs adds the numbers of exclusive CPUs.
func (v *View) addCPUs(packed []byte) error {
	for len(packed) > 0 {
		cpu, n := protowire.ConsumeVarint(packed)
		if n < 0 {
			return protowire.ParseError(n)
		}
		v.Exclusive[int(cpu)] = true
		packed = packed[n:]
	}
	return nil
}

// HolderOf returns a container with any of the devices; of several the first by name.
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
