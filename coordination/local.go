// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/survive"
)

// answerer answers a member: the server at the socket, or the server of the same process.
type answerer interface {
	Prefer(context.Context, *api.PreferRequest, ...grpc.CallOption) (*api.PreferResponse, error)
	Allocated(context.Context, *api.AllocatedRequest, ...grpc.CallOption) (*api.AllocatedResponse, error)
	Pair(context.Context, *api.PairRequest, ...grpc.CallOption) (*api.PairResponse, error)
}

// local calls the server of this process without the socket, which avoids half of the socket calls. The
// results are the same as through the socket: with the same checks and deadlines, and with copied messages.
// After the server has ended, the member calls the next server at the socket.
type local struct {
	server *server
	next   answerer
}

func (l local) Prefer(
	ctx context.Context, q *api.PreferRequest, options ...grpc.CallOption,
) (*api.PreferResponse, error) {
	if !l.server.calls.begin() {
		return l.next.Prefer(ctx, q, options...)
	}
	return directly(ctx, l.server, q, l.server.Prefer)
}

func (l local) Allocated(
	ctx context.Context, q *api.AllocatedRequest, options ...grpc.CallOption,
) (*api.AllocatedResponse, error) {
	if !l.server.calls.begin() {
		return l.next.Allocated(ctx, q, options...)
	}
	return directly(ctx, l.server, q, l.server.Allocated)
}

func (l local) Pair(
	ctx context.Context, q *api.PairRequest, options ...grpc.CallOption,
) (*api.PairResponse, error) {
	if !l.server.calls.begin() {
		return l.next.Pair(ctx, q, options...)
	}
	return directly(ctx, l.server, q, l.server.Pair)
}

// calls counts calls in flight and rejects new calls after drain. The zero value is ready to use.
type calls struct {
	mu      sync.Mutex
	flying  int
	drained bool
	last    chan struct{} // closed when the last call ends; nil before drain
}

// begin reports whether a call may begin; the caller must call end.
func (c *calls) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.drained {
		c.flying++
	}
	return !c.drained
}

func (c *calls) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flying--; c.flying == 0 && c.drained {
		close(c.last)
	}
}

// drain rejects new calls and waits for the calls in flight, for at most limit. It must be called only once.
func (c *calls) drain(limit time.Duration) {
	c.mu.Lock()
	c.drained, c.last = true, make(chan struct{})
	if c.flying == 0 {
		close(c.last)
	}
	c.mu.Unlock()
	select {
	case <-c.last:
	case <-time.After(limit):
	}
}

// directly calls a method of a server and stops waiting for the result when ctx is done. The caller has
// called begin.
func directly[Q, A proto.Message](
	ctx context.Context, s *server, q Q, method func(context.Context, Q) (A, error),
) (none A, err error) {
	type result struct {
		answer A
		err    error
	}
	results := make(chan result, 1)
	q = proto.CloneOf(q) // the method may use it after the deadline, when the caller has continued
	go func() {
		defer s.calls.end()
		var r result
		r.err = survive.Do(s.log, func() error {
			answer, err := method(ctx, q)
			r.answer = proto.CloneOf(answer)
			return err
		})
		results <- r
	}()
	select {
	case r := <-results:
		return r.answer, r.err
	case <-ctx.Done():
		return none, status.FromContextError(ctx.Err()).Err()
	}
}
