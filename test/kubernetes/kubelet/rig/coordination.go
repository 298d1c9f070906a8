// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
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

// waitJoined waits until both daemons have joined the coordination.
func (r *Rig) waitJoined(ctx context.Context) error {
	var status *api.StatusResponse
	var failed error
	err := node.Poll(ctx, func() bool {
		status, failed = r.Status(ctx)
		return failed == nil && r.allJoined(status)
	})
	if err != nil {
		return fmt.Errorf("wait for both daemons to join, have %v: %w", status, errors.Join(err, failed))
	}
	return nil
}

func (r *Rig) allJoined(status *api.StatusResponse) bool {
	joined := map[string]bool{}
	for _, resource := range status.GetResources() {
		joined[resource.GetName()] = resource.GetConnected()
	}
	return joined[r.GPU] && (joined[VF] || r.VFs() == 0)
}
