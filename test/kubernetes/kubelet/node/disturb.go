// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"path"
	"sync/atomic"

	"google.golang.org/grpc"
)

// The calls to the kubelet that can be disturbed.
const (
	List     = "List"     // of PodResources
	Get      = "Get"      // of PodResources
	ListPods = "ListPods" // of the Pods API
	GetPods  = "GET /pods"
)

// Disturb makes the node call a function for every later call to the kubelet, between its answer and the
// sending of the answer. An error replaces the answer. The function may be called concurrently; nil ends the
// disturbance.
func (n *Node) Disturb(do func(ctx context.Context, question string) error) {
	n.disturbance.do.Store(&do)
}

// disturbance is the current function, for all servers that a node has had.
type disturbance struct {
	do atomic.Pointer[func(context.Context, string) error]
}

func (d *disturbance) ask(ctx context.Context, question string) error {
	if do := d.do.Load(); do != nil && *do != nil {
		return (*do)(ctx, question)
	}
	return nil
}

func (d *disturbance) grpc(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, answer grpc.UnaryHandler,
) (any, error) {
	response, err := answer(ctx, request)
	if disturbed := d.ask(ctx, path.Base(info.FullMethod)); disturbed != nil {
		return nil, disturbed
	}
	return response, err
}
