// SPDX-License-Identifier: Apache-2.0

// Package exporter asks the AMD Device Metrics Exporter on this node for the health of GPUs.
package exporter

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tandem-k8s/tandem/plugins/exporter"
)

// Socket is the default path of the exporter's socket.
const Socket = "/var/lib/amd-metrics-exporter/amdgpu_device_metrics_exporter_grpc.socket"

// Health returns the health of the GPUs that the exporter monitors, by device ID, or nil without an exporter.
// Untested GPUs, with the state "unknown", count as healthy.
func Health(ctx context.Context, socket string) (map[string]bool, error) {
	answer, err := exporter.Ask(ctx, socket, list)
	if answer == nil || err != nil {
		return nil, err
	}
	health := make(map[string]bool, len(answer.GetGPUState()))
	for _, state := range answer.GetGPUState() {
		health[state.GetDevice()] = !strings.EqualFold(state.GetHealth(), "unhealthy")
	}
	return health, nil
}

func list(ctx context.Context, conn grpc.ClientConnInterface) (*GPUStateResponse, error) {
	return NewMetricsServiceClient(conn).List(ctx, &emptypb.Empty{})
}
