// SPDX-License-Identifier: Apache-2.0

//go:build !kubernetes135 && !kubernetes136

package scheduler

import "k8s.io/dynamic-resource-allocation/structured"

// Minor is the Kubernetes version of the allocator, 1.37.
const Minor = 37

// Defaults returns the features of that version's scheduler with default gates
// (pkg/features/kube_features.go).
func Defaults() structured.Features {
	return structured.Features{
		AdminAccess: true, PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true,
		DeviceBindingAndStatus: true, ConsumableCapacity: true, FractionalCapacityRange: true,
	}
}
