// SPDX-License-Identifier: Apache-2.0

//go:build kubernetes135

package scheduler

import "k8s.io/dynamic-resource-allocation/structured"

// Minor is the version of Kubernetes whose allocator this is, 1.35. That of 1.34 searches in the same
// way.
const Minor = 35

// Defaults are the features of a scheduler of that version whose gates nobody has set.
func Defaults() structured.Features {
	return structured.Features{AdminAccess: true, PrioritizedList: true}
}
