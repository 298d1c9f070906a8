package rig

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// holding names a device of a resource.
type holding struct{ resource, id string }

// holdings says which pod holds which device. They are kept apart from the kubelet's own records, so that a device
// with two owners is found.
type holdings map[holding]*v1.Pod

func (h holdings) take(pod *v1.Pod, devices map[string][]string) {
	for resource, ids := range devices {
		for _, id := range ids {
			h[holding{resource, id}] = pod
		}
	}
}

// release forgets all that a pod holds.
func (h holdings) release(uid types.UID) {
	for device, owner := range h {
		if owner.UID == uid {
			delete(h, device)
		}
	}
}

// Owners returns which device of a resource is held by which pod, by the pod's name.
func (r *Rig) Owners(resource string) map[string]string {
	owners := map[string]string{}
	for device, pod := range r.held {
		if device.resource == resource {
			owners[device.id] = pod.Name
		}
	}
	return owners
}

// HeldAndGone is the number of VFs that pods hold and that are not there.
func (r *Rig) HeldAndGone() int {
	count := 0
	for device := range r.held {
		if device.resource == VF && r.gone[device.id] {
			count++
		}
	}
	return count
}

// Free is the number of healthy devices of a resource that no pod holds.
func (r *Rig) Free(resource string) int {
	free := 0
	for id := range r.Node.Inventory(resource) {
		if r.held[holding{resource, id}] == nil {
			free++
		}
	}
	return free
}
