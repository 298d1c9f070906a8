// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// topologyAffinity is the reason of a pod that the kubelet's Topology Manager has refused
// (ErrorTopologyAffinity in pkg/kubelet/cm/topologymanager). No device plugin is asked then.
const topologyAffinity = "TopologyAffinityError"

// rejectedFor is how long ago the kubelet may have refused a pod of which is told: such pods stay until
// somebody deletes them.
const rejectedFor = 10 * time.Minute

// Rejected is a pod that the kubelet's Topology Manager has refused a short time ago.
type Rejected struct {
	kubelet.Pod
	UID       string
	Resources []string // extended resources that the pod asks for, sorted
}

// rejectedPods are those among pods.
func rejectedPods(list []corev1.Pod, now time.Time) []Rejected {
	var rejected []Rejected
	for i := range list {
		p := &list[i]
		started := p.Status.StartTime // the kubelet sets it when it refuses a pod
		if p.Status.Phase != corev1.PodFailed || p.Status.Reason != topologyAffinity || started == nil ||
			now.Sub(started.Time) > rejectedFor {
			continue
		}
		wanted := map[string]bool{}
		for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			for name := range requests(p, &c) {
				wanted[name] = true
			}
		}
		if len(wanted) > 0 {
			rejected = append(rejected, Rejected{
				kubelet.Pod{Namespace: p.Namespace, Name: p.Name}, uid(p), slices.Sorted(maps.Keys(wanted)),
			})
		}
	}
	return rejected
}
