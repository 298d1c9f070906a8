// SPDX-License-Identifier: Apache-2.0

package rig

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// holding names a device of a resource.
type holding struct{ resource, id string }

// holdings maps devices to the pods that hold them, independently of the kubelet's records, to detect devices
// with two owners.
type holdings map[holding]*v1.Pod

func (h holdings) take(pod *v1.Pod, devices map[string][]string) {
	for resource, ids := range devices {
		for _, id := range ids {
			h[holding{resource, id}] = pod
		}
	}
}

// release removes the holdings of a pod.
func (h holdings) release(uid types.UID) {
	for device, owner := range h {
		if owner.UID == uid {
			delete(h, device)
		}
	}
}

// Owners returns the names of pods by the devices of a resource that they hold.
func (r *Rig) Owners(resource string) map[string]string {
	owners := map[string]string{}
	for device, pod := range r.held {
		if device.resource == resource {
			owners[device.id] = pod.Name
		}
	}
	return owners
}

// Free returns the number of healthy devices of a resource that no pod holds.
func (r *Rig) Free(resource string) int {
	free := 0
	for id := range r.Node.Inventory(resource) {
		if r.held[holding{resource, id}] == nil {
			free++
		}
	}
	return free
}
