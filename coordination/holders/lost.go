// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// ofLost stands for the checkpoint before an Allocate of which the kubelet has lost its record. No checkpoint
// has this identity: a version without lost holders drops the Allocate.
var ofLost = kubelet.Identity{Size: -1}

// Lost returns the holders whose records the kubelet has lost as Allocates, for the file of a server.
func (h Holders) Lost() (all []Allocate) {
	for _, holder := range h {
		if !holder.Lost {
			continue
		}
		for _, resource := range slices.Sorted(maps.Keys(holder.Devices)) {
			all = append(all, Allocate{
				Resource: resource, IDs: holder.Devices[resource], UID: holder.UID, Pod: holder.Pod,
				Name: holder.Name, Recorded: ofLost,
			})
		}
	}
	return all
}

// SplitLost returns the lost holders among the Allocates in the file of a server, and the other Allocates.
func SplitLost(saved []Allocate) (lost Holders, others []Allocate) {
	for _, a := range saved {
		if a.Recorded != ofLost {
			others = append(others, a)
			continue
		}
		lost = append(lost, Holder{
			UID: a.UID, Pod: a.Pod, Name: a.Name, Devices: kubelet.Devices{a.Resource: a.IDs}, Lost: true,
		})
	}
	return lost, others
}
