// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Names of every pod.
const (
	Namespace = "default"
	Container = "main" // the pod's only container
)

// Request is the request of a container for a number of devices.
type Request struct {
	Resource string
	Count    int
}

// Pod is a pod with one container.
type Pod struct {
	Name        string
	Annotations map[string]string
	Requests    []Request // in the order of their allocation

	uid       string
	created   time.Time
	devices   map[string][]string // IDs by resource
	responses map[string]*v1beta1.ContainerAllocateResponse
	rejected  corev1.PodStatus // zero for an admitted pod
}

// Grant is what the plugins have given a container.
type Grant struct {
	Devices     map[string][]string // IDs by resource, sorted
	Environment []string            // "NAME=value", sorted
	Nodes       []string            // paths of device nodes in the container, sorted
	Mounts      map[string]string   // paths on the host by path in the container
}

// MountPaths returns the paths of the mounts in the container, sorted.
func (g Grant) MountPaths() []string { return slices.Sorted(maps.Keys(g.Mounts)) }

// grant merges the plugins' answers for the container, as the kubelet does (deviceRunContainerOptions in
// pkg/kubelet/cm/devicemanager/pod_devices.go).
func (p *Pod) grant() Grant {
	g := Grant{Devices: maps.Clone(p.devices), Mounts: map[string]string{}}
	for _, name := range slices.Sorted(maps.Keys(p.responses)) {
		response := p.responses[name]
		for variable, value := range response.GetEnvs() {
			g.Environment = append(g.Environment, variable+"="+value)
		}
		for _, node := range response.GetDevices() {
			g.Nodes = append(g.Nodes, node.GetContainerPath())
		}
		for _, mount := range response.GetMounts() {
			g.Mounts[mount.GetContainerPath()] = mount.GetHostPath()
		}
	}
	slices.Sort(g.Environment)
	slices.Sort(g.Nodes)
	g.Nodes = slices.Compact(g.Nodes)
	return g
}

// object returns the pod as the API server has it.
func (p *Pod) object() corev1.Pod {
	asked := corev1.ResourceList{}
	for _, r := range p.Requests {
		asked[corev1.ResourceName(r.Resource)] = *resource.NewQuantity(int64(r.Count), resource.DecimalSI)
	}
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: Namespace, Name: p.Name, UID: types.UID(p.uid), Annotations: p.Annotations,
			CreationTimestamp: metav1.NewTime(p.created.Truncate(time.Second)),
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: Container, Resources: corev1.ResourceRequirements{Limits: asked, Requests: asked},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	if p.rejected.Phase != "" {
		pod.Status = p.rejected
	}
	return pod
}

// reject ends a pod for a reason, as [reason] writes it.
func (p *Pod) reject(why error) {
	now := metav1.Now()
	word, message, _ := strings.Cut(why.Error(), ": ")
	p.rejected = corev1.PodStatus{Phase: corev1.PodFailed, Reason: word, Message: message, StartTime: &now}
}

// Admit admits a pod. An error has the kubelet's reason, as in the status of a rejected pod; the pod has then
// ended.
func (k *Kubelet) Admit(ctx context.Context, p *Pod) error {
	k.admitting.Lock()
	defer k.admitting.Unlock()
	a, err := k.begin(ctx, p)
	if err != nil {
		return err
	}
	if refusal := a.Admit(); refusal != nil {
		why := reason(a.Node, refusal)
		k.mu.Lock()
		k.end(p)
		p.reject(why)
		k.rejected = append(k.rejected, p)
		k.mu.Unlock()
		return why
	}
	return k.write()
}

// begin adds the pod and frees the devices of ended pods.
func (k *Kubelet) begin(ctx context.Context, p *Pod) (*devicemanager.Admission, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.index(p.Name) >= 0 {
		return nil, fmt.Errorf("admit pod %q: a pod of this name runs", p.Name)
	}
	x := &asker{ctx: ctx, kubelet: k, pod: p, plugins: map[string]*Plugin{}}
	node, healthy := k.node()
	var requests model.Requests
	for _, r := range p.Requests {
		i, known := node.Resource(r.Resource)
		if !known {
			return nil, fmt.Errorf("admit pod %q: no plugin has registered %s", p.Name, r.Resource)
		}
		requests = append(requests, model.Request{Resource: i, Count: r.Count})
		x.plugins[r.Resource] = k.resources[r.Resource].plugin
	}
	k.uids, k.ended = k.uids+1, nil
	k.forget(p.Name)
	p.uid, p.created = "uid-"+strconv.Itoa(k.uids), time.Now()
	p.devices, p.responses = map[string][]string{}, map[string]*v1beta1.ContainerAllocateResponse{}
	taken := node.NewSet()
	for _, other := range k.pods {
		for _, ids := range other.devices {
			taken.Include(node.Select(ids))
		}
	}
	k.pods, x.node, k.used[p.Name] = append(k.pods, p), node, true
	return &devicemanager.Admission{
		Node: node, Kubelet: model.TopologyManager{Rule: k.rule}, Others: x,
		Containers: []model.Container{{Requests: requests}},
		Healthy:    node.Select(healthy), Taken: taken, Reusable: node.NewSet(),
	}, nil
}

// node returns the devices of all plugins for the model, and the IDs of the healthy ones.
func (k *Kubelet) node() (node *devicemanager.Devices, healthy []string) {
	var all []model.Resource
	for _, name := range slices.Sorted(maps.Keys(k.resources)) {
		of := model.Resource{Name: name}
		for _, d := range k.resources[name].devices {
			of.Devices = append(of.Devices, model.Device{
				Device: placement.Device{ID: d.GetID()}, NUMA: numaNode(d),
			})
		}
		all, healthy = append(all, of), append(healthy, k.healthy(name)...)
	}
	return devicemanager.NewDevices(all), healthy
}

func numaNode(d *v1beta1.Device) topology.NUMANode {
	for _, n := range d.GetTopology().GetNodes() {
		return topology.Node(int(n.GetID()))
	}
	return topology.NUMANode{}
}

// reason returns the error of a refused pod, with the word that the kubelet writes into the pod's status.
func reason(node *devicemanager.Devices, r *devicemanager.Refusal) error {
	const unexpected = "UnexpectedAdmissionError"
	switch {
	case r.Err != nil:
		return fmt.Errorf("%s: %w", unexpected, r.Err)
	case r.Shortage != nil && !r.Shortage.Healthy:
		return fmt.Errorf("%s: no healthy device of %s", unexpected, node.Resources[r.Shortage.Resource].Name)
	case r.Shortage != nil:
		return fmt.Errorf("%s: requested %d %s, available %d", unexpected, r.Shortage.Count,
			node.Resources[r.Shortage.Resource].Name, r.Shortage.Free)
	default:
		return errors.New("TopologyAffinityError: Resources cannot be allocated with Topology locality")
	}
}

// asker calls the plugins for a pod in admission, in the order of the kubelet: of one resource after the
// other the preferred devices, then their allocation.
type asker struct {
	ctx     context.Context
	kubelet *Kubelet
	pod     *Pod
	node    *devicemanager.Devices
	plugins map[string]*Plugin // of the pod's resources
	failed  error              // of the first failed allocation
}

var _ devicemanager.Others = (*asker)(nil)

// Hints implements model.Others: no other manager has hints.
func (x *asker) Hints(int) []model.Hints { return nil }

// Prefer implements model.Others. Before the question the devices of earlier resources are allocated.
// As in the kubelet, a failed call means no preference.
func (x *asker) Prefer(_ int, q devicemanager.Question) devicemanager.Set {
	x.settle(q.Allocated)
	plugin := x.plugins[x.node.Resources[q.Resource].Name]
	if x.failed != nil || !plugin.Options.GetGetPreferredAllocationAvailable() {
		return x.node.NewSet()
	}
	chosen, err := plugin.Prefer(x.ctx, x.ids(q.Available()), x.ids(q.Must), q.Size)
	if err != nil {
		return x.node.NewSet()
	}
	return x.node.Select(chosen)
}

// Pick implements model.Others: the lowest devices.
func (x *asker) Pick(of devicemanager.Set, count int) devicemanager.Set {
	return x.node.Select(x.ids(of)[:count])
}

// Allocate implements model.Others.
func (x *asker) Allocate(_ int, _ model.Hint, devices devicemanager.Set) error {
	x.settle(devices)
	return x.failed
}

// settle allocates the devices of each resource that has devices and no answer yet.
func (x *asker) settle(devices devicemanager.Set) {
	for _, r := range x.pod.Requests {
		i, _ := x.node.Resource(r.Resource) // known since begin
		ids := x.ids(devices.Intersection(x.node.Resources[i].All))
		if len(ids) == 0 || x.failed != nil || x.pod.responses[r.Resource] != nil {
			continue
		}
		response, err := x.plugins[r.Resource].Allocate(x.ctx, ids...)
		if err != nil {
			x.failed = fmt.Errorf("allocate %s: %w", r.Resource, err)
			return
		}
		x.kubelet.mu.Lock()
		x.pod.devices[r.Resource], x.pod.responses[r.Resource] = ids, response
		x.kubelet.mu.Unlock()
	}
}

// ids returns the IDs of devices, sorted.
func (x *asker) ids(of devicemanager.Set) []string {
	var ids []string
	for _, d := range x.node.Devices(of) {
		ids = append(ids, d.ID)
	}
	slices.Sort(ids)
	return ids
}
