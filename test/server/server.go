// SPDX-License-Identifier: Apache-2.0

// Package server has published servers and pods, for tests of readers of NodeTopology objects.
package server

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
)

// Names of the resources.
const (
	GPU = "amd.com/gpu"
	VF  = "tandem.dev/rdma_vf"
)

// GPUs is how many GPUs, NICs and switches a server has.
const GPUs = 8

// Topology returns a server with policy restricted and two NUMA nodes, each with four switches, and on each
// switch a GPU and a NIC with vfs VFs, with or without hints.
func Topology(name string, vfs int, hinted bool) *v1alpha1.NodeTopology {
	t := &v1alpha1.NodeTopology{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeTopology"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
	t.Spec.Kubelet = v1alpha1.Kubelet{TopologyManagerPolicy: "restricted", TopologyManagerScope: "container"}
	gpus := v1alpha1.Resource{Name: GPU, Kind: v1alpha1.GPU, Devices: GPUs, Hints: halves(GPUs)}
	vf := v1alpha1.Resource{Name: VF, Kind: v1alpha1.VF, Devices: GPUs * vfs}
	if hinted {
		vf.Hints = halves(GPUs * vfs)
	}
	for i := range GPUs {
		onNIC := set(i*vfs, (i+1)*vfs)
		vf.Functions = append(vf.Functions, onNIC)
		gpus.Addresses = append(gpus.Addresses, fmt.Sprintf("0000:%02x:00.0", i*16+2))
		vf.Addresses = append(vf.Addresses, fmt.Sprintf("0000:%02x:00.0", i*16+3))
		t.Spec.Switches = append(t.Spec.Switches, v1alpha1.Switch{
			Name: fmt.Sprintf("0000:%02x:01.0", i*16), NUMA: new(2 * i / GPUs),
			Path:    fmt.Sprintf("pci0000:%02x/0000:%02x:01.0/0000:%02x:00.0", i*16, i*16, i*16+1),
			Devices: map[string]v1alpha1.Set{GPU: set(i, i+1), VF: onNIC},
		})
	}
	t.Spec.Resources = []v1alpha1.Resource{gpus, vf}
	t.Spec.NUMANodes = []v1alpha1.NUMANode{{Number: 0}, {Number: 1}}
	return t
}

// Hold adds a pod that holds GPUs and VFs.
func Hold(t *v1alpha1.NodeTopology, uid string, gpus, vfs v1alpha1.Set) {
	t.Spec.Held = append(t.Spec.Held, v1alpha1.Held{UID: uid, Containers: []v1alpha1.Container{{
		Name: "app", Devices: map[string]v1alpha1.Set{GPU: gpus, VF: vfs},
	}}})
}

// Pod returns a pod that requests GPUs and VFs in one container. Its UID is its name.
func Pod(name string, gpus, vfs int) *v1.Pod {
	asked := v1.ResourceList{}
	for resourceName, n := range map[v1.ResourceName]int{GPU: gpus, VF: vfs} {
		if n > 0 {
			asked[resourceName] = *resource.NewQuantity(int64(n), resource.DecimalSI)
		}
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault, UID: types.UID(name)},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "app", Image: "app", Resources: v1.ResourceRequirements{Limits: asked, Requests: asked},
		}}},
	}
}

// Node returns the scheduler's view of the server without the object.
func Node(name string, vfs int) *v1.Node {
	count := func(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }
	room := v1.ResourceList{
		v1.ResourceCPU: count(1000), v1.ResourceMemory: resource.MustParse("1Ti"), v1.ResourcePods: count(1000),
		GPU: count(GPUs), VF: count(GPUs * vfs),
	}
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}},
		Status: v1.NodeStatus{
			Capacity: room, Allocatable: room,
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
		},
	}
}

func halves(devices int) map[string]v1alpha1.Set {
	return map[string]v1alpha1.Set{"0": set(0, devices/2), "1": set(devices/2, devices)}
}

func set(from, to int) v1alpha1.Set { return v1alpha1.Set(fmt.Sprintf("%d-%d", from, to-1)) }
