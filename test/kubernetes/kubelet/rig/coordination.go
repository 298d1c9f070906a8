// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
)

// Status asks whichever daemon serves the coordination socket.
func (r *Rig) Status(ctx context.Context) (*api.StatusResponse, error) {
	socket := "unix:" + coordination.SocketPath(r.RunDir())
	conn, err := grpc.NewClient(socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("ask coordinator: %w", err)
	}
	defer conn.Close()
	status, err := api.NewCoordinationClient(conn).Status(ctx, &api.StatusRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask coordinator: %w", err)
	}
	return status, nil
}

// waitJoined waits until both daemons have joined the coordination. It polls every few milliseconds, because
// the socket sends no notification.
func (r *Rig) waitJoined(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		status, err := r.Status(ctx)
		if err == nil && r.allJoined(status) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for both daemons to join, have %v: %w",
				status, errors.Join(context.Cause(ctx), err))
		}
	}
}

func (r *Rig) allJoined(status *api.StatusResponse) bool {
	joined := map[string]bool{}
	for _, resource := range status.GetResources() {
		joined[resource.GetName()] = resource.GetConnected()
	}
	return joined[r.GPU] && (joined[VF] || r.VFs() == 0)
}
