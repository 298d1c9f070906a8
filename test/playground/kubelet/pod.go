// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
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
