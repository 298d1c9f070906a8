// SPDX-License-Identifier: Apache-2.0

// Package exporter asks the AMD Device Metrics Exporter on this node, for both plugins.
package exporter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// Ask calls the metrics exporter at a socket. It returns the zero value if the socket, and so the exporter,
// is absent. Each call opens a connection, because the exporter restarts independently.
func Ask[A any](
	ctx context.Context, socket string, ask func(context.Context, grpc.ClientConnInterface) (A, error),
) (answer A, err error) {
	if _, err := os.Stat(socket); errors.Is(err, fs.ErrNotExist) {
		return answer, nil
	}
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return answer, fmt.Errorf("open %s: %w", socket, err)
	}
	defer conn.Close()
	answer, err = ask(ctx, conn)
	if err != nil {
		return answer, fmt.Errorf("ask %s: %v", socket, status.Code(err))
	}
	return answer, nil
}
