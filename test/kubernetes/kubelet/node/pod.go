// SPDX-License-Identifier: Apache-2.0

package node

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// Pod is a new pod with a UID of its own, as the API server would deliver it to the node.
func Pod(name string, init, app []v1.Container) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name, UID: uuid.NewUUID()},
		Spec:       v1.PodSpec{InitContainers: init, Containers: app},
	}
}

// Container asks for this many devices of each resource, and for one CPU, which no device plugin answers for.
func Container(name string, devices map[string]int) v1.Container {
	limits := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	for name, count := range devices {
		limits[v1.ResourceName(name)] = *resource.NewQuantity(int64(count), resource.DecimalSI)
	}
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Limits: limits, Requests: limits}}
}
