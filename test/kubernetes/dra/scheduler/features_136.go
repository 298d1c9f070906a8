// SPDX-License-Identifier: Apache-2.0

//go:build kubernetes136

package scheduler

import "k8s.io/dynamic-resource-allocation/structured"

// Minor is the Kubernetes version of the allocator, 1.36.
const Minor = 36

// Defaults returns the features of that version's scheduler with default gates.
func Defaults() structured.Features {
	return structured.Features{
		AdminAccess: true, PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true,
		DeviceBindingAndStatus: true, ConsumableCapacity: true,
	}
}
