// SPDX-License-Identifier: Apache-2.0

package model

import (
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/checkpoint"
)

// write writes the devices of all containers to the checkpoint.
func (k *Kubelet) write() error {
	var allocations []checkpoint.Allocation
	for _, of := range slices.SortedFunc(maps.Keys(k.held), holder.compare) {
		for _, name := range slices.Sorted(maps.Keys(k.held[of])) {
			allocations = append(allocations, checkpoint.Allocation{
				PodUID: of.uid, Container: of.container, Resource: name,
				Devices: map[string][]string{"-1": k.held[of][name]}, Response: k.responses[of][name],
			})
		}
	}
	maps.DeleteFunc(k.responses, func(of holder, _ map[string][]byte) bool { return k.held[of] == nil })
	if err := k.put(allocations); err != nil {
		return err
	}
	k.written = map[holder]kubelet.Devices{}
	for of, devices := range k.held {
		k.written[of] = clone(devices)
	}
	return nil
}
