// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// TestDeadServer: a call between the death of the server and the client's notice of it ends, whatever calls
// came before.
func TestDeadServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n network
		client, server := n.newSocket(), n.newSocket()
		l, err := server.Listen()
		if err != nil {
			t.Fatal(err)
		}
		serving := grpc.NewServer()
		defer serving.Stop()
		go func() { _ = serving.Serve(l) }()
		conn, err := client.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		call := func(ctx context.Context) codes.Code {
			return status.Code(conn.Invoke(ctx, "/none/None", &emptypb.Empty{}, &emptypb.Empty{}))
		}
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
