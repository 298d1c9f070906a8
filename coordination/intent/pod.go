// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"iter"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
)

// Pod is a pod of this node that has not ended.
type Pod struct {
	kubelet.Pod
	UID     string
	Created time.Time
	Started bool // the kubelet has begun to run it: its admission is over
	// Containers are in the order in which the kubelet gives them devices: init containers first, sidecars among
	// them.
	Containers []Container
	Alignment  Alignment // "" where the pod says nothing, or nothing else than what every pod gets
	Chosen     []string  // devices that a scheduler chose: PCI addresses or device IDs, in its order
	Remarks    []string  // what of its annotations could not be read, for people
}

// Container is a container of a pod and what it asks of device plugins.
type Container struct {
	Name     string
	Role     Role
	Requests map[string]int // devices wanted, by resource name; extended resources only, none that is 0
	// CPUs are those that the kubelet's static CPU policy gives it alone; 0 where it shares them with others.
	CPUs int
}

// Role says what becomes of a container's devices.
type Role = devicemanager.Role

// The roles.
const (
	App     = devicemanager.App
	Init    = devicemanager.Init
	Sidecar = devicemanager.Sidecar
)

// Of is the container of a pod by index.
func (p Pod) Of(index int) kubelet.Container {
	return kubelet.Container{Pod: p.Pod, Name: p.Containers[index].Name}
}

// newPods reduces pods to what decides. Those that have ended are left out: their devices are free.
func newPods(list []corev1.Pod, policy Policy) []Pod {
	var pods []Pod
	for i := range list {
		if phase := list[i].Status.Phase; phase != corev1.PodSucceeded && phase != corev1.PodFailed {
			pods = append(pods, newPod(&list[i], policy))
		}
	}
	return pods
}

func newPod(p *corev1.Pod, policy Policy) Pod {
	pod := Pod{
		Pod:     kubelet.Pod{Namespace: p.Namespace, Name: p.Name},
		UID:     uid(p),
		Created: p.CreationTimestamp.Time,
		Started: p.Status.StartTime != nil || p.Status.Phase == corev1.PodRunning ||
			len(p.Status.ContainerStatuses)+len(p.Status.InitContainerStatuses) > 0,
	}
	for c, role := range Containers(p) {
		pod.Containers = append(pod.Containers, Container{
			Name: c.Name, Role: role, Requests: requests(p, c), CPUs: exclusive(p, c),
		})
	}
	pod.readAnnotations(p.Annotations, policy)
	return pod
}

// uid is the UID by which the kubelet knows a pod: of a static pod not that of its mirror, which the API
// server has.
func uid(p *corev1.Pod) string {
	if static, ok := p.Annotations[corev1.MirrorPodAnnotationKey]; ok {
		return static
	}
	return string(p.UID)
}

// Containers returns the containers of a pod with their roles, in the order in which the kubelet gives them
// devices.
func Containers(p *corev1.Pod) iter.Seq2[*corev1.Container, Role] {
	return func(yield func(*corev1.Container, Role) bool) {
		for i := range p.Spec.InitContainers {
			c, role := &p.Spec.InitContainers[i], Init
			if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
				role = Sidecar
			}
			if !yield(c, role) {
				return
			}
		}
		for i := range p.Spec.Containers {
			if !yield(&p.Spec.Containers[i], App) {
				return
			}
		}
	}
}

// Limits returns the limits of a container that the kubelet's device manager looks at. The device manager
// uses limits, which for extended resources equal the requests, and passes over those that the scheduler
// backed with a ResourceClaim (DRA).
func Limits(p *corev1.Pod, c *corev1.Container) iter.Seq2[string, resource.Quantity] {
	return func(yield func(string, resource.Quantity) bool) {
		for name, quantity := range c.Resources.Limits {
			if !backedByClaim(p, c.Name, name) && !yield(string(name), quantity) {
				return
			}
		}
	}
}

// requests are the limits of a container that device plugins fulfil.
func requests(p *corev1.Pod, c *corev1.Container) map[string]int {
	wanted := map[string]int{}
	for name, quantity := range Limits(p, c) {
		if strings.Contains(name, "/") {
			if n := quantity.Value(); n > 0 && n <= maxRequest {
				wanted[name] = int(n)
			}
		}
	}
	return wanted
}

// exclusive counts the CPUs of a container that it has alone where the kubelet's CPU policy is static: whole
// ones, of a pod of class Guaranteed (guaranteedCPUs in pkg/kubelet/cm/cpumanager/policy_static.go).
func exclusive(p *corev1.Pod, c *corev1.Container) int {
	cpus := c.Resources.Requests.Cpu()
	if !guaranteed(p) || cpus.MilliValue()%1000 != 0 || cpus.Value() > maxRequest {
		return 0
	}
	return int(cpus.Value())
}

// guaranteed reports whether every container of a pod is sure of all the CPU and memory that it may use,
// which makes its class Guaranteed (ComputePodQOS in pkg/apis/core/v1/helper/qos). What is given to the pod
// as a whole is not looked at.
func guaranteed(p *corev1.Pod) bool {
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, request := c.Resources.Limits[name], c.Resources.Requests[name]
			if limit.IsZero() || limit.Cmp(request) != 0 {
				return false
			}
		}
	}
	return p.Spec.Resources == nil
}

// maxRequest is beyond any node's number of devices: what is larger is no question of ours.
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
