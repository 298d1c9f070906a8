// SPDX-License-Identifier: Apache-2.0

//go:build kubernetes136

package scheduler

import "k8s.io/dynamic-resource-allocation/structured"

// Minor is the version of Kubernetes whose allocator this is, 1.36.
const Minor = 36

// Defaults are the features of a scheduler of that version whose gates nobody has set.
func Defaults() structured.Features {
	return structured.Features{
		AdminAccess: true, PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true,
		DeviceBindingAndStatus: true, ConsumableCapacity: true,
	}
}
