// SPDX-License-Identifier: Apache-2.0

//go:build kubernetes135

package scheduler

import "k8s.io/dynamic-resource-allocation/structured"

// Minor is the Kubernetes version of the allocator, 1.35. The search of 1.34 is the same.
const Minor = 35

// Defaults returns the features of that version's scheduler with default gates.
func Defaults() structured.Features {
	return structured.Features{AdminAccess: true, PrioritizedList: true}
}
