// SPDX-License-Identifier: Apache-2.0

package health

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
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Default paths of the sockets of AMD's Device Metrics Exporter on this node.
const (
	GPUExporter = "/var/lib/amd-metrics-exporter/amdgpu_device_metrics_exporter_grpc.socket"
	NICExporter = "/var/lib/amd-metrics-exporter/amdnic_device_metrics_exporter_grpc.socket"
)

// Methods of the exporter.
const (
	listGPUs = "/metricssvc.MetricsService/List"
	listNICs = "/nicmetricssvc.MetricsService/List"
)

// GPUHealth returns the health of the GPUs that the exporter monitors, by device ID, or nil without an
// exporter. Untested GPUs, with the state "unknown", count as healthy.
func GPUHealth(ctx context.Context, socket string) (map[string]bool, error) {
	var answer GPUStateResponse
	found, err := askExporter(ctx, socket, listGPUs, &answer)
	if !found || err != nil {
		return nil, err
	}
	health := make(map[string]bool, len(answer.GetGPUState()))
	for _, state := range answer.GetGPUState() {
		health[state.GetDevice()] = !strings.EqualFold(state.GetHealth(), "unhealthy")
	}
	return health, nil
}

// NICHealth returns the health of the exporter's functions, by PCI address, or nil without an exporter, as
// AMD's network device plugin reads it for resources with enableExporterHealthCheck
// (pkg/exporter/netDeviceHealth.go in ROCm/k8s-network-device-plugin). As there, every value other than
// "healthy" is unhealthy: for a function with an unknown administrative state the exporter reports neither
// "healthy" nor "unhealthy".
func NICHealth(ctx context.Context, socket string) (map[string]bool, error) {
	var answer NICStateResponse
	found, err := askExporter(ctx, socket, listNICs, &answer)
	if !found || err != nil {
		return nil, err
	}
	health := make(map[string]bool, len(answer.GetNICState()))
	for _, state := range answer.GetNICState() {
		health[state.GetDevice()] = strings.EqualFold(state.GetHealth(), "healthy")
	}
	return health, nil
}

// askExporter calls a method at a socket. The exporter is not found if the socket is absent. Each call opens
// a connection, because the exporter restarts independently.
func askExporter(ctx context.Context, socket, method string, answer proto.Message) (found bool, err error) {
	if _, err := os.Stat(socket); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return true, fmt.Errorf("open %s: %w", socket, err)
	}
	defer conn.Close()
	if err := conn.Invoke(ctx, method, &emptypb.Empty{}, answer); err != nil {
		return true, fmt.Errorf("ask %s: %v", socket, status.Code(err))
	}
	return true, nil
}
