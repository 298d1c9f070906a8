// Package exporter asks the AMD Device Metrics Exporter on this node for the health of NICs, as AMD's network
// device plugin does where a resource has enableExporterHealthCheck (pkg/exporter/netDeviceHealth.go in
// ROCm/k8s-network-device-plugin).
package exporter

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tandem-k8s/tandem/plugins/exporter"
)

// Socket is where the exporter listens for questions about NICs.
const Socket = "/var/lib/amd-metrics-exporter/amdnic_device_metrics_exporter_grpc.socket"

// Health returns the health of the functions that the exporter watches, by PCI address; nil where there is no
// exporter. As in AMD's plugin anything but "healthy" is unhealthy: the exporter says neither of a function
// whose administrative state it does not know.
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
