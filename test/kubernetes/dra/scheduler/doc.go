// SPDX-License-Identifier: Apache-2.0

// Package scheduler is the part of Kubernetes' scheduler that gives claims their devices: its own
// structured allocator, around which this package keeps what it is called with. [Publish] makes the
// ResourceSlices of a driver; a [Scheduler] has them and the classes, allocates claims and knows which
// devices are taken.
//
// Which version of Kubernetes it is, is decided when the tests are built: go.mod has the newest,
// go.v1.36.mod and go.v1.35.mod others, with the build tags kubernetes136 and kubernetes135. [Minor]
// tells.
package scheduler
