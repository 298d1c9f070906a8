// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// serveAlone serves the calls of a network, in a bubble, and returns the server's end and a call.
func serveAlone(
	t *testing.T, options ...grpc.ServerOption,
) (server *socket, call func(context.Context) codes.Code) {
	t.Helper()
	n := &network{}
	server = n.newSocket()
	l, err := server.Listen()
	if err != nil {
		t.Fatal(err)
	}
	serving := grpc.NewServer(options...)
	t.Cleanup(serving.Stop)
	go func() { _ = serving.Serve(l) }()
	conn, err := n.newSocket().Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return server, func(ctx context.Context) codes.Code {
		return status.Code(conn.Invoke(ctx, "/none/None", &emptypb.Empty{}, &emptypb.Empty{}))
	}
}

// TestGivenUpCall: a caller that gives up learns that its time is over, and the server that the caller has
// gone.
func TestGivenUpCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ends := make(chan error)
		_, call := serveAlone(t, grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			<-stream.Context().Done()
			ends <- stream.Context().Err()
			return nil
		}))
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), 80*time.Millisecond)
			code := call(ctx)
			cancel()
			if code != codes.DeadlineExceeded {
				t.Fatalf("the caller: %v", code)
			}
			if end := <-ends; !errors.Is(end, context.Canceled) {
				t.Fatalf("the server: %v", end)
			}
		}
	})
}

// TestDeadServer: a call between the death of the server and the client's notice of it ends, whatever calls
// came before.
func TestDeadServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, call := serveAlone(t)
		if code := call(t.Context()); code != codes.Unimplemented {
			t.Fatal(code)
		}
		server.kill()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 3 {
			go func() {
				if code := call(ctx); code != codes.Unavailable {
					t.Error(code)
				}
			}()
			synctest.Wait()
		}
		seeds.Sleep(time.Minute)
	})
}
