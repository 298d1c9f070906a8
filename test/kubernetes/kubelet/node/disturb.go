// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"path"
	"sync/atomic"

	"google.golang.org/grpc"
)

// The questions to the kubelet that can be disturbed.
const (
	List     = "List"     // of PodResources
	Get      = "Get"      // of PodResources
	ListPods = "ListPods" // of the Pods API
	GetPods  = "GET /pods"
)

// Disturb calls a function with every question to the kubelet from now on, when its answer is ready and
// before it is sent. An error is sent instead. The function may be called from several goroutines at once;
// nil ends it.
func (n *Node) Disturb(do func(ctx context.Context, question string) error) {
	n.disturbance.do.Store(&do)
}

// disturbance is what is called; of a node, whichever servers it has had.
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
