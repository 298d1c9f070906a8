// Package kubelet reads what the kubelet knows of pods and their devices, gently.
//
// The PodResources List call is not harmless: while an Allocate is in flight it can make the kubelet forget
// the devices of that Allocate and hand them out twice (kubernetes PR 137534). Inside GetPreferredAllocation,
// before anything is marked, it is safe; that is the only place where Tandem calls it, and only when
// must-include is empty. The kubelet limits all callers of a node together to 100 calls a second with a burst
// of 10 (pkg/kubelet/apis/podresources/server_v1.go, pkg/kubelet/apis/grpc/ratelimit.go).
//
// The Pods API and GET /pods of the HTTPS server read the pod manager alone and change nothing; they may be
// called at any time. The former has a limiter of its own, of the same size.
package kubelet
