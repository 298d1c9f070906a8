// SPDX-License-Identifier: Apache-2.0

// Package scheduler is the part of Kubernetes' scheduler that allocates claims: its own structured allocator,
// with the inputs that this package provides. [Publish] makes the ResourceSlices of a driver; a [Scheduler]
// has the slices and the classes, allocates claims and tracks the allocated devices.
//
// The build selects the version of Kubernetes: go.mod has the newest, go.v1.36.mod and go.v1.35.mod others,
// with the build tags kubernetes136 and kubernetes135. [Minor] is the selected version.
package scheduler
