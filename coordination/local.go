package coordination

import (
	"context"
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tandem-k8s/tandem/coordination/api"
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
		answer, err := surviving(s.coordinator.log, func() (A, error) { return method(ctx, q) })
		if err == nil {
			answer = proto.CloneOf(answer)
		}
		results <- result{answer, err}
	}()
	select {
	case r := <-results:
		return r.answer, r.err
	case <-ctx.Done():
		return none, status.FromContextError(ctx.Err()).Err()
	}
}

// surviving makes an error of a panic: it costs one answer, in whose place the asker chooses alone, and not the daemon.
func surviving[A any](log *slog.Logger, answer func() (A, error)) (a A, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			log.Error("coordination panicked", "panic", cause, "stack", string(debug.Stack()))
			err = status.Error(codes.Internal, "internal error")
		}
	}()
	return answer()
}

// survive is surviving for what comes over the socket.
func survive(log *slog.Logger) grpc.ServerOption {
	return grpc.ChainUnaryInterceptor(func(ctx context.Context, q any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		return surviving(log, func() (any, error) { return handle(ctx, q) })
	})
}
