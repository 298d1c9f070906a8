// SPDX-License-Identifier: Apache-2.0

// Package kubelet reads the kubelet's data about pods and their devices.
//
// The PodResources List call has a side effect: while an Allocate is in flight it can make the kubelet forget
// the devices of that Allocate and assign them twice (kubernetes PR 137534). Inside GetPreferredAllocation,
// before the kubelet marks devices, the call is safe; Tandem calls List only there, and only if must-include
// is empty. The kubelet limits all callers of a node together to 100 calls a second with a burst of 10
// (pkg/kubelet/apis/podresources/server_v1.go, pkg/kubelet/apis/grpc/ratelimit.go).
//
// The Pods API and GET /pods of the HTTPS server only read the pod manager; they may be called at any time.
// The Pods API has a rate limiter of its own, of the same size.
package kubelet
