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
)

// TestGivenUpCall: a caller that gives up learns that its time is over, and the server that the caller has
// gone.
func TestGivenUpCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n network
		l, err := n.newSocket().Listen()
		if err != nil {
			t.Fatal(err)
		}
		ends := make(chan error)
		serving := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			<-stream.Context().Done()
			ends <- stream.Context().Err()
			return nil
		}))
		defer serving.Stop()
		go func() { _ = serving.Serve(l) }()
		conn, err := n.newSocket().Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), 80*time.Millisecond)
			err := conn.Invoke(ctx, "/none/None", &emptypb.Empty{}, &emptypb.Empty{})
			cancel()
			if status.Code(err) != codes.DeadlineExceeded {
				t.Fatalf("the caller: %v", err)
			}
			if end := <-ends; !errors.Is(end, context.Canceled) {
				t.Fatalf("the server: %v", end)
			}
		}
	})
}
