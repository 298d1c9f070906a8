// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"iter"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
)

// Container is a container of a pod with the requests for devices.
type Container struct {
	Name     string
	Role     Role
	Requests map[string]int // numbers above 0 by extended resource
	CPUs     int            // exclusive CPUs of the kubelet's static CPU policy; 0 if the CPUs are shared
}

// Role determines the lifetime of a container's devices.
type Role = devicemanager.Role

// Roles of containers.
const (
	App     = devicemanager.App
	Init    = devicemanager.Init
	Sidecar = devicemanager.Sidecar
)

// Containers returns the containers of a pod with their roles, in the kubelet's order of allocation.
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

// ContainersOf returns the containers of a pod with their requests, in the kubelet's order of allocation.
func ContainersOf(p *corev1.Pod) []Container {
	var containers []Container
	isGuaranteed := guaranteed(p)
	for c, role := range Containers(p) {
		container := Container{Name: c.Name, Role: role, Requests: requests(p, c)}
		if isGuaranteed {
			container.CPUs = exclusive(c)
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

// requests returns the limits of a container that device plugins fulfil.
func requests(p *corev1.Pod, c *corev1.Container) map[string]int {
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

// exclusive returns the number of exclusive CPUs of a container in a pod of class Guaranteed under the
// kubelet's static CPU policy: whole CPUs (guaranteedCPUs in pkg/kubelet/cm/cpumanager/policy_static.go).
func exclusive(c *corev1.Container) int {
	cpus := c.Resources.Requests.Cpu()
	if cpus.MilliValue()%1000 != 0 || cpus.Value() > maxRequest {
		return 0
	}
	return int(cpus.Value())
}

// guaranteed reports whether the class of a pod is Guaranteed: every container requests all the CPU and
// memory of the limits (ComputePodQOS in pkg/apis/core/v1/helper/qos). A pod with resources as a whole is
// never Guaranteed here.
func guaranteed(p *corev1.Pod) bool {
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
