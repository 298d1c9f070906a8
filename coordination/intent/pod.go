// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
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

// Total returns the devices that the kubelet aligns for a pod as a whole, by resource (scope pod).
func Total(of []Container) map[string]int {
	names := map[string]int{}
	for _, c := range of {
		for name := range c.Requests {
			names[name] = 0
		}
	}
	sorted := slices.Sorted(maps.Keys(names))
	var containers []devicemanager.Container
	for _, c := range of {
		one := devicemanager.Container{Role: c.Role}
		for name, count := range c.Requests {
			one.Requests = append(one.Requests, devicemanager.Request{
				Resource: slices.Index(sorted, name), Count: count,
			})
		}
		containers = append(containers, one)
	}
	for _, r := range devicemanager.Total(containers) {
		names[sorted[r.Resource]] = r.Count
	}
	return names
}

// newPod returns a pod with the containers that request devices.
func newPod(p *corev1.Pod, policy Policy) Pod {
	pod := Pod{
		Pod:     kubelet.Pod{Namespace: p.Namespace, Name: p.Name},
		UID:     string(p.UID),
		Created: p.CreationTimestamp.Time,
		Started: p.Status.StartTime != nil || p.Status.Phase == corev1.PodRunning ||
			len(p.Status.ContainerStatuses)+len(p.Status.InitContainerStatuses) > 0,
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
		for name := range requests(p, c) {
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
