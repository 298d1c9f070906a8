// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Gone has the UIDs of pods in the checkpoint that no longer hold anything. An unknown pod still holds the
// checkpoint's devices.
type Gone map[string]bool

// Exclusive are the kubelet's pods with requests for exclusive resources; nil if unknown. The selection is
// that of NodeResourceTopologyMatch, which compares it with its own list: running pods, and ended pods until
// their deletion (pkg/noderesourcetopology/podprovider in sigs.k8s.io/scheduler-plugins, informer mode
// Dedicated).
type Exclusive []types.NamespacedName

// gone returns the pods of the checkpoint that hold nothing, according to package holders, which the
// coordinator uses too.
func gone(checkpoint kubelet.Checkpoint, pods kubelet.Reading[holders.Pods]) Gone {
	gone := Gone{}
	for name := range checkpoint.Containers() {
		gone[recordedContainer(name).PodUID] = true
	}
	found, _ := holders.Find(holders.Sources{Recorded: kubelet.Read(checkpoint, nil), Pods: pods})
	for _, h := range found {
		delete(gone, h.UID)
	}
	return gone
}

// podLister calls each with every pod of the kubelet, and returns false if the kubelet does not list pods.
type podLister func(each func(*corev1.Pod)) (told bool)

// add adds a pod of the kubelet's list, if the pod requests exclusive resources.
func (e *Exclusive) add(p *corev1.Pod) {
	if phase := p.Status.Phase; phase != "" && phase != corev1.PodPending && asksExclusive(p) {
		*e = append(*e, types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
	}
}

// asksExclusive reports whether a container of a pod asks for devices or, in a pod of class Guaranteed, for
// whole CPUs, memory or huge pages, whichever managers the kubelet has (pkg/noderesourcetopology/
// resourcerequests in sigs.k8s.io/scheduler-plugins).
func asksExclusive(pod *corev1.Pod) bool {
	guaranteed := pod.Status.QOSClass == corev1.PodQOSGuaranteed
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for name, asked := range c.Resources.Requests {
			if !native(name) || guaranteed && whole(name, asked) {
				return true
			}
		}
	}
	return false
}

// native reports whether a resource is a native one of Kubernetes (IsNativeResource in
// pkg/apis/core/v1/helper).
func native(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") ||
		strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

func whole(name corev1.ResourceName, asked resource.Quantity) bool {
	switch {
	case name == corev1.ResourceCPU:
		return asked.MilliValue() > 0 && asked.MilliValue()%1000 == 0
	case name == corev1.ResourceMemory, strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		return asked.Value() > 0
	default:
		return false
	}
}

// Container identifies a container of a pod.
type Container struct{ PodUID, Name string }

// recordedContainer returns the container of a name in the checkpoint.
func recordedContainer(name string) Container {
	uid, name, _ := strings.Cut(name, "/")
	return Container{PodUID: uid, Name: name}
}

// Held has the devices of a container.
type Held struct {
	Container
	Devices map[string][]string // IDs by resource
}

// held returns the devices of each container in the checkpoint, in any order.
func held(checkpoint kubelet.Checkpoint) []Held {
	var all []Held
	for name, devices := range checkpoint.Containers() {
		all = append(all, Held{recordedContainer(name), devices})
	}
	return all
}
