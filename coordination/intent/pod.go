// SPDX-License-Identifier: Apache-2.0

// Package intent reads the requests of this node's pods: the names of the pods, and the number of devices of
// each resource for each container, before the kubelet admits the pods. The kubelet's calls to a device
// plugin do not contain the request.
//
// # Sources
//
// The administrator selects among several sources (--intent), best first:
//
//	pods-api      the kubelet's Pods API socket, kubelet 1.37 and later. Complete and current; needs no
//	              permission except access to the socket's folder. Default.
//	kubelet       GET /pods of the kubelet's HTTPS server. The same data, on every version. Needs a token with
//	              permission to get nodes/pods (before Kubernetes 1.33 nodes/proxy, a permission that also
//	              allows to run commands in every container: think twice).
//	podresources  PodResources List: the existing pods, and the devices of a container's first half. Contains
//	              no requests. Default.
//
// The API server is no source: it lags behind the kubelet, its list needs rights over all nodes, and its
// fields are the pod author's.
//
// Without any source the order and the time of the questions remain ([Inference]).
//
// The default sources, pods-api and podresources, cost nothing and need no permission. After a failure that
// has cost time a source is skipped for a pause, longer each time ([Sources.Pods]), and the next best source
// answers. Every decision names the source.
//
// # Sizes
//
// A pod's author decides on the size of the list. Each pod is reduced at once to the containers that request
// devices ([Pod]); a pod that has not changed since the last list is not decoded again. One list is read at a
// time. Of a list that is larger than kubelet.MaxPods, or has more requests than can be kept, nothing is
// known: the [Enforcement] says so.
package intent

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
)

// Pod is a pod of this node that has not ended.
type Pod struct {
	kubelet.Pod
	UID     string
	Created time.Time
	Started bool // the kubelet has admitted and started the pod
	// Containers are those that request devices, in the kubelet's order of allocation: first init containers,
	// including sidecars.
	Containers []Container
	Alignment  Alignment // "" if equal to the policy's, or not annotated
	Chosen     []string  // a scheduler's choice of devices: PCI addresses or device IDs, in order
	Remarks    []string  // about unreadable or forbidden annotations, for people
}

// Of returns a container of a pod by index.
func (p Pod) Of(index int) kubelet.Container {
	return kubelet.Container{Pod: p.Pod, Name: p.Containers[index].Name}
}

// newPod returns a pod with the containers that request devices.
func newPod(p *corev1.Pod, policy Policy) Pod {
	pod := Pod{
		Pod:        kubelet.Pod{Namespace: p.Namespace, Name: p.Name},
		UID:        string(p.UID),
		Created:    p.CreationTimestamp.Time,
		Started:    kubelet.HasStarted(p),
		Containers: slices.DeleteFunc(ContainersOf(p), func(c Container) bool { return len(c.Requests) == 0 }),
	}
	annotated := readAnnotations(p.Namespace, p.Annotations, policy)
	pod.Alignment, pod.Chosen, pod.Remarks = annotated.alignment, annotated.chosen, annotated.remarks
	return pod
}

// TopologyAffinity is the reason in the status of a pod that the kubelet's Topology Manager has rejected
// (ErrorTopologyAffinity in pkg/kubelet/cm/topologymanager), without a call to a device plugin.
const TopologyAffinity = "TopologyAffinityError"

// IsRejected reports whether the kubelet's Topology Manager has rejected a pod.
func IsRejected(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed && p.Status.Reason == TopologyAffinity
}

// rejectedFor is the maximum age of a reported rejection: rejected pods stay until a user or controller
// deletes the pods.
const rejectedFor = 10 * time.Minute

// Rejected is a pod that the kubelet's Topology Manager has rejected a short time ago.
type Rejected struct {
	kubelet.Pod
	UID       string
	Resources []string // requested extended resources, sorted
}

// rejectedPod returns a pod that the kubelet's Topology Manager has rejected, and the time of the rejection,
// nil for another pod.
func rejectedPod(p *corev1.Pod) (*Rejected, time.Time) {
	started := p.Status.StartTime // set by the kubelet at the rejection
	if !IsRejected(p) || started == nil {
		return nil, time.Time{}
	}
	wanted := map[string]bool{}
	for c := range Containers(p) {
		for name := range deviceRequests(p, c) {
			wanted[name] = true
		}
	}
	if len(wanted) == 0 {
		return nil, time.Time{}
	}
	return &Rejected{
		kubelet.Pod{Namespace: p.Namespace, Name: p.Name}, string(p.UID), slices.Sorted(maps.Keys(wanted)),
	}, started.Time
}

// Container is a container of a pod with the requests for devices.
type Container struct {
	Name     string         `json:"name"`
	Role     model.Role     `json:"-"`
	Requests map[string]int `json:"requests"`       // numbers above 0 by extended resource
	CPUs     int            `json:"cpus,omitempty"` // exclusive CPUs of the static CPU policy; 0 if shared
}

// Containers returns the containers of a pod with their roles, in the kubelet's order of allocation.
func Containers(p *corev1.Pod) iter.Seq2[*corev1.Container, model.Role] {
	return func(yield func(*corev1.Container, model.Role) bool) {
		for i := range p.Spec.InitContainers {
			c, role := &p.Spec.InitContainers[i], model.Init
			if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
				role = model.Sidecar
			}
			if !yield(c, role) {
				return
			}
		}
		for i := range p.Spec.Containers {
			if !yield(&p.Spec.Containers[i], model.App) {
				return
			}
		}
	}
}

// ContainersOf returns the containers of a pod with their requests, in the kubelet's order of allocation.
func ContainersOf(p *corev1.Pod) []Container {
	var containers []Container
	isGuaranteed := isGuaranteed(p)
	for c, role := range Containers(p) {
		container := Container{Name: c.Name, Role: role, Requests: deviceRequests(p, c)}
		if isGuaranteed {
			container.CPUs = exclusiveCPUs(c)
		}
		containers = append(containers, container)
	}
	return containers
}

// Limits returns the limits of a container for the kubelet's device manager. The device manager uses limits,
// equal to the requests for extended resources, and skips limits that the scheduler backed with a
// ResourceClaim (DRA).
func Limits(p *corev1.Pod, c *corev1.Container) iter.Seq2[string, resource.Quantity] {
	return func(yield func(string, resource.Quantity) bool) {
		for name, quantity := range c.Resources.Limits {
			if !backedByClaim(p, c.Name, name) && !yield(string(name), quantity) {
				return
			}
		}
	}
}

// deviceRequests returns the limits of a container that device plugins fulfil.
func deviceRequests(p *corev1.Pod, c *corev1.Container) map[string]int {
	var wanted map[string]int
	for name, quantity := range Limits(p, c) {
		if strings.Contains(name, "/") {
			if n := quantity.Value(); n > 0 && n <= maxRequest {
				if wanted == nil {
					wanted = map[string]int{}
				}
				wanted[name] = int(n)
			}
		}
	}
	return wanted
}

// exclusiveCPUs returns the number of exclusive CPUs of a container in a pod of class Guaranteed under the
// kubelet's static CPU policy: whole CPUs (guaranteedCPUs in pkg/kubelet/cm/cpumanager/policy_static.go).
func exclusiveCPUs(c *corev1.Container) int {
	cpus := c.Resources.Requests.Cpu()
	if cpus.MilliValue()%1000 != 0 || cpus.Value() > maxRequest {
		return 0
	}
	return int(cpus.Value())
}

// isGuaranteed reports whether the class of a pod is Guaranteed: every container requests all the CPU and
// memory of the limits (ComputePodQOS in pkg/apis/core/v1/helper/qos). A pod with resources as a whole is
// never Guaranteed here.
func isGuaranteed(p *corev1.Pod) bool {
	for c := range Containers(p) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, request := c.Resources.Limits[name], c.Resources.Requests[name]
			if limit.IsZero() || limit.Cmp(request) != 0 {
				return false
			}
		}
	}
	return p.Spec.Resources == nil
}

// maxRequest exceeds any node's number of devices. Larger requests are ignored.
const maxRequest = 1 << 20

func backedByClaim(p *corev1.Pod, container string, name corev1.ResourceName) bool {
	claims := p.Status.ExtendedResourceClaimStatus
	if claims == nil {
		return false
	}
	for _, m := range claims.RequestMappings {
		if m.ContainerName == container && m.ResourceName == string(name) {
			return true
		}
	}
	return false
}
