package coordination

import (
	"context"

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

// local asks the server of this process, which takes half of the questions off the socket. The answers are those that the socket
// would bring: after the same checks, at the same deadline, and as messages of the asker's own.
type local struct{ server *server }

func (l local) Prefer(ctx context.Context, q *api.PreferRequest, _ ...grpc.CallOption) (*api.PreferResponse, error) {
	return directly(ctx, l.server, q, l.server.Prefer)
}

func (l local) Allocated(ctx context.Context, q *api.AllocatedRequest, _ ...grpc.CallOption) (*api.AllocatedResponse, error) {
	return directly(ctx, l.server, q, l.server.Allocated)
}

func (l local) Pair(ctx context.Context, q *api.PairRequest, _ ...grpc.CallOption) (*api.PairResponse, error) {
	return directly(ctx, l.server, q, l.server.Pair)
}

// directly calls a method of a server and stops waiting for it when ctx is done.
func directly[Q, A proto.Message](ctx context.Context, s *server, q Q, method func(context.Context, Q) (A, error)) (none A, err error) {
	type result struct {
		answer A
		err    error
	}
	results := make(chan result, 1)
	q = proto.CloneOf(q) // it may be looked at after the deadline, when the asker has gone on
	go func() {
		var r result
		r.err = survive.Do(s.coordinator.log, func() error {
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
