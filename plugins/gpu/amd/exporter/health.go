// Package exporter asks the AMD Device Metrics Exporter on this node for the health of GPUs.
package exporter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Socket is where the exporter listens.
const Socket = "/var/lib/amd-metrics-exporter/amdgpu_device_metrics_exporter_grpc.socket"

// Health returns the health of the GPUs that the exporter watches, by device ID; nil where there is no
// exporter. Only what it calls unhealthy is: "unknown" is said of a GPU that it does not test. It comes and
// goes on its own, so that every question opens a connection.
func Health(ctx context.Context, socket string) (map[string]bool, error) {
	if _, err := os.Stat(socket); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", socket, err)
	}
	defer conn.Close()
	answer, err := NewMetricsServiceClient(conn).List(ctx, &emptypb.Empty{})
	if err != nil {
		return nil, fmt.Errorf("ask %s: %v", socket, status.Code(err))
	}
	health := make(map[string]bool, len(answer.GetGPUState()))
	for _, state := range answer.GetGPUState() {
		health[state.GetDevice()] = !strings.EqualFold(state.GetHealth(), "unhealthy")
	}
	return health, nil
}
