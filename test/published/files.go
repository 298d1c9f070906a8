// SPDX-License-Identifier: Apache-2.0

package published

import "github.com/tandem-k8s/tandem/test/checkpoint"

// Entry is a container's entry for a resource in the kubelet's device checkpoint.
type Entry = checkpoint.Allocation

// WriteCheckpoint writes the device checkpoint into a kubelet's folder, as a whole.
func WriteCheckpoint(kubeletDir string, entries ...Entry) error {
	return checkpoint.Write(kubeletDir, entries, map[string][]string{})
}

// Give returns an entry of some devices without a NUMA node.
func Give(uid, container, resource string, ids ...string) Entry {
	return Entry{
		PodUID: uid, Container: container, Resource: resource, Devices: map[string][]string{"-1": ids},
	}
}
