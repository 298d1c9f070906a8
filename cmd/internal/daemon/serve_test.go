// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
)

// The coordination ends after the calls of the kubelet: a server drains them for up to five seconds after ctx
// is done.
func TestCoordinationOutlivesTheKubeletsCalls(t *testing.T) {
	f := kubeletAlone(t)
	log := slog.New(slog.DiscardHandler)
	node, err := f.Node(log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	member := node.Member("amd.com/gpu", device.GPU)
	offer := func(ctx context.Context) error {
		member.Publish(device.Announcement{Devices: []device.Device{{ID: "gpu0", Healthy: true}}})
		for node.Role() != coordination.Serves {
			<-time.After(time.Millisecond)
		}
		member.AwaitTaken(ctx)
		open := member.StartAllocate(t.Context(), []string{"gpu0"})
		cancel()
		<-ctx.Done()
		<-time.After(300 * time.Millisecond) // the call is not answered yet
		if node.Role() != coordination.Serves {
			t.Error("the coordination has ended while an Allocate of the kubelet is open")
		}
		member.Returned(t.Context(), open, false)
		return nil
	}
	if err := f.Serve(ctx, log, node, offer); err != nil {
		t.Error(err)
	}
}
