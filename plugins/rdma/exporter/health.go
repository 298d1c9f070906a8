// SPDX-License-Identifier: Apache-2.0

// Package exporter reads the health of NICs from the AMD Device Metrics Exporter on this node, as AMD's
// network device plugin does for resources with enableExporterHealthCheck (pkg/exporter/netDeviceHealth.go in
// ROCm/k8s-network-device-plugin).
package exporter

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tandem-k8s/tandem/plugins/exporter"
)

// Socket is the exporter's socket for NICs.
const Socket = "/var/lib/amd-metrics-exporter/amdnic_device_metrics_exporter_grpc.socket"

// Health returns the health of the exporter's functions, by PCI address; nil if no exporter is running. As in
// AMD's plugin every value other than "healthy" is unhealthy: for a function with an unknown administrative
// state the exporter reports neither "healthy" nor "unhealthy".
func Health(ctx context.Context, socket string) (map[string]bool, error) {
	answer, err := exporter.Ask(ctx, socket, list)
	if answer == nil || err != nil {
		return nil, err
	}
	health := make(map[string]bool, len(answer.GetNICState()))
	for _, state := range answer.GetNICState() {
		health[state.GetDevice()] = strings.EqualFold(state.GetHealth(), "healthy")
	}
	return health, nil
}

func list(ctx context.Context, conn grpc.ClientConnInterface) (*NICStateResponse, error) {
	return NewMetricsServiceClient(conn).List(ctx, &emptypb.Empty{})
}
