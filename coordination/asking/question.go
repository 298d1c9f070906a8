// SPDX-License-Identifier: Apache-2.0

package asking

import (
	"slices"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/resources"
)

// Progress is the kubelet's progress with a container.
type Progress int

// The kubelet's progress.
const (
	Unknown  Progress = iota
	Open              // the container's remaining resources come next
	Complete          // all resources of the container are allocated
)

// Question is a GetPreferredAllocation call, or an Allocate call without a preceding GetPreferredAllocation.
type Question struct {
	Resource string
	// free devices by the kubelet's records, on the NUMA nodes of its choice; MustInclude is a subset
	Available   []string
	MustInclude []string
	Size        int
}

// Offer converts a question about devices of a resource for package holders.
func (q Question) Offer(r *resources.Resource) holders.Offer {
	offer := holders.Offer{Resource: q.Resource, Available: q.Available, MustInclude: q.MustInclude}
	offered, nodes := map[string]bool{}, map[int]bool{}
	for _, id := range slices.Concat(q.Available, q.MustInclude) {
		offered[id] = true
		if node, known := r.Device(id).NUMA.Number(); known {
			nodes[node] = true
		}
	}
	for _, d := range r.Ordered() {
		if node, known := d.NUMA.Number(); d.Healthy && !offered[d.ID] && (!known || nodes[node]) {
			offer.Withheld = append(offer.Withheld, d.ID)
		}
	}
	return offer
}
