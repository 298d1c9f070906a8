// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/best"
)

// CouldHave returns the first container with missing devices of a pod that was refused in an Allocate, and
// the best pairs of the devices that were free on its NUMA nodes. Must be called before the pod is removed.
func (r *Rig) CouldHave(pod *v1.Pod) (container string, pairs best.Pairs, err error) {
	a := newAdmission(r, pod)
	for i, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		devices := r.Node.Devices(pod, c.Name)
		gpus, vfs := asksFor(c, r.GPU), asksFor(c, VF)
		if len(devices[r.GPU]) == gpus && len(devices[VF]) == vfs {
			a.settle(devices, i < len(pod.Spec.InitContainers))
			continue
		}
		numa := r.Node.Affinity(pod, c.Name)
		pairs, err = best.Reachable(a.side(r.GPU, gpus, numa), a.side(VF, vfs, numa), r.Level)
		return c.Name, pairs, err
	}
	return "", pairs, fmt.Errorf("pod %s has all that it asks for", pod.Name)
}

func asksFor(c v1.Container, resource string) int {
	quantity := c.Resources.Limits[v1.ResourceName(resource)]
	return int(quantity.Value())
}
