// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// Pod returns a new pod with a unique UID, as delivered by the API server.
func Pod(name string, init, app []v1.Container) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name, UID: uuid.NewUUID()},
		Spec:       v1.PodSpec{InitContainers: init, Containers: app},
	}
}

// Containers returns all containers of a pod in the order of their admission.
func Containers(pod *v1.Pod) []v1.Container {
	return slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
}

// Requests returns the devices that a container requests, by resource.
func Requests(c *v1.Container) map[string]int {
	requests := map[string]int{}
	for name, quantity := range c.Resources.Limits {
		if strings.Contains(string(name), "/") {
			requests[string(name)] = int(quantity.Value())
		}
	}
	return requests
}

// Container returns a container that requests devices by resource, and one CPU, which has no device plugin.
func Container(name string, devices map[string]int) v1.Container {
	limits := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	for name, count := range devices {
		limits[v1.ResourceName(name)] = *resource.NewQuantity(int64(count), resource.DecimalSI)
	}
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Limits: limits, Requests: limits}}
}
