// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"path"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// fault is a fault of a plugin's next call of the coordinator.
type fault struct {
	kind   callFault
	method string        // the first call of this method
	late   time.Duration // of a late call
	strike func()        // of a killed server
	taken  bool          // by a call
}

// callFault is a kind of fault.
type callFault string

// Kinds of faults of calls.
const (
	lostQuestion callFault = "a question to the coordinator is lost"
	lostAnswer   callFault = "an answer of the coordinator is lost"
	lateQuestion callFault = "a question to the coordinator is late"
	lateAnswer   callFault = "an answer of the coordinator is late"
	doubled      callFault = "a question to the coordinator comes twice"
	cutOff       callFault = "the connection is cut amid an answer"
	killBefore   callFault = "the server is killed before it has a question"
	killAfter    callFault = "the server is killed before its answer arrives"
)

var callFaults = []callFault{
	lostQuestion, lostAnswer, lateQuestion, lateAnswer, doubled, cutOff, killBefore, killAfter,
}

// arm makes the next call of the plugin fail.
func (s *socket) arm(f *fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault, s.cut = f, nil
}

// take returns the fault for a call, once; nil for none.
func (s *socket) take(method string) *fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.fault
	if f == nil || f.method != method {
		return nil
	}
	s.fault, f.taken = nil, true
	return f
}

// call makes one call of the coordinator, with its fault.
func (s *socket) call(
	ctx context.Context, method string, q, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
	options ...grpc.CallOption,
) error {
	own := time.Duration(len(path.Base(method))) * time.Microsecond
	stagger(ctx, own, conn)
	err := s.fail(ctx, s.take(path.Base(method)), func() error {
		if s.isDead() {
			return status.Error(codes.Unavailable, "the caller is dead") // whether it still writes is random
		}
		return outlast(ctx, func(ctx context.Context) error {
			return invoke(ctx, method, q, answer, conn, options...)
		})
	})
	if err != nil {
		seeds.Sleep(own) // also if the caller gives up at this time
	} else if taken, is := answer.(*api.AllocatedResponse); is && taken.GetContainer() != nil {
		s.setRecipient(taken.GetContainer())
	}
	return err
}

// setRecipient keeps the container that an answer to an Allocate names.
func (s *socket) setRecipient(named *api.Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pod := kubelet.Pod{Namespace: named.GetNamespace(), Name: named.GetPod()}
	s.recipient = &kubelet.Container{Pod: pod, Name: named.GetContainer()}
}

// takeRecipient returns the container that the latest answer to an Allocate names, once; nil for none.
func (s *socket) takeRecipient() *kubelet.Container {
	s.mu.Lock()
	defer s.mu.Unlock()
	recipient := s.recipient
	s.recipient = nil
	return recipient
}

// outlast makes a call that ends with ctx. The deadline that the server learns is a moment later: otherwise
// the server would learn at one time that the caller has given up and that its own time is over, in a random
// order.
func outlast(ctx context.Context, ask func(context.Context) error) error {
	deadline, limited := ctx.Deadline()
	if !limited || ctx.Err() != nil {
		return ask(ctx)
	}
	later, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(time.Microsecond))
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	err := ask(later)
	if err != nil && ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	return err
}

// fail makes a call with a fault, nil for none.
func (s *socket) fail(ctx context.Context, f *fault, ask func() error) error {
	if f == nil {
		return ask()
	}
	switch f.kind {
	case lostQuestion:
		return never(ctx)
	case lostAnswer:
		_ = ask()
		return never(ctx)
	case lateQuestion:
		seeds.Pause(ctx, f.late)
	case lateAnswer:
		err := ask()
		seeds.Pause(ctx, f.late)
		if ctx.Err() != nil {
			return never(ctx)
		}
		return err
	case doubled:
		_ = ask()
	case cutOff:
		return s.cutAnswer(ask)
	case killBefore:
		f.strike()
	case killAfter:
		_ = ask()
		f.strike()
		return status.Error(codes.Unavailable, "connection reset by peer")
	}
	return ask()
}

// stagger makes a call wait for a connection, and delays it by a time of its method before and after; the
// result of a call that fails is delayed likewise. Otherwise the order of what happens at the same time
// would be random: calls that a new connection releases, and who learns first that a connection is lost.
func stagger(ctx context.Context, own time.Duration, conn *grpc.ClientConn) {
	seeds.Sleep(own)
	if conn.GetState() == connectivity.Ready {
		return
	}
	conn.Connect()
	for state := conn.GetState(); state == connectivity.Idle || state == connectivity.Connecting; {
		if !conn.WaitForStateChange(ctx, state) {
			return
		}
		state = conn.GetState()
	}
	seeds.Sleep(own)
}

// cutAnswer makes a call, and cuts the connection while the answer is on its way.
func (s *socket) cutAnswer(ask func() error) error {
	cut := make(chan struct{})
	s.mu.Lock()
	s.cut = cut
	s.mu.Unlock()
	result := make(chan error, 1)
	go func() { result <- ask() }()
	synctest.Wait()
	close(cut)
	return <-result
}

// never waits until ctx is done.
func never(ctx context.Context) error {
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}
