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

// answerer is what a member asks: the server at the socket, or the one of its own process.
type answerer interface {
	Prefer(context.Context, *api.PreferRequest, ...grpc.CallOption) (*api.PreferResponse, error)
	Allocated(context.Context, *api.AllocatedRequest, ...grpc.CallOption) (*api.AllocatedResponse, error)
	Pair(context.Context, *api.PairRequest, ...grpc.CallOption) (*api.PairResponse, error)
}

// local asks the server of this process, which takes half of the questions off the socket. The answers are
// those that the socket would bring: after the same checks, at the same deadline, and as messages of the
// asker's own. Once the server ends it is the next one at the socket that is asked.
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

// calls counts those in flight, and lets no more begin once it is drained. The zero value is ready.
type calls struct {
	mu      sync.Mutex
	flying  int
	drained bool
	last    chan struct{} // closed when the last one ends; nil before drain
}

// begin reports whether a call may begin; end has to follow.
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

// drain lets no more calls begin, and waits until those in flight have ended, for limit at the most. It is
// called once.
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

// directly calls a method of a server, of which the call has begun, and stops waiting for it when ctx is
// done.
func directly[Q, A proto.Message](
	ctx context.Context, s *server, q Q, method func(context.Context, Q) (A, error),
) (none A, err error) {
	type result struct {
		answer A
		err    error
	}
	results := make(chan result, 1)
	q = proto.CloneOf(q) // it may be looked at after the deadline, when the asker has gone on
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
