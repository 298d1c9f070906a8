// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service answers as the exporter does, or hangs.
type service struct {
	UnimplementedMetricsServiceServer
	answer *NICStateResponse
}

func (s service) List(ctx context.Context, _ *emptypb.Empty) (*NICStateResponse, error) {
	if s.answer == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.answer, nil
}

func start(t *testing.T, s service) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	RegisterMetricsServiceServer(server, s)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return socket
}

func TestHealth(t *testing.T) {
	t.Attr("parity", "amdnic/health-exporter")
	socket := start(t, service{answer: &NICStateResponse{NICState: []*NICState{
		{Device: "0000:06:00.0", Health: "healthy"},
		{Device: "0000:06:00.1", Health: "HEALTHY"},
		{Device: "0000:23:00.0", Health: "unhealthy"},
		{Device: "0000:43:00.0", Health: "unknown"},
		{Device: "0000:66:00.0"},
	}}})
	got, err := Health(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{
		"0000:06:00.0": true, "0000:06:00.1": true, "0000:23:00.0": false, "0000:43:00.0": false,
		"0000:66:00.0": false,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNoExporter(t *testing.T) {
	if got, err := Health(t.Context(), filepath.Join(t.TempDir(), "none")); got != nil || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	socket := filepath.Join(t.TempDir(), "dead")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Health(t.Context(), socket); err == nil || !strings.Contains(err.Error(), "Unavailable") {
		t.Errorf("dead exporter: %v", err)
	}
}

func TestExporterHangs(t *testing.T) {
	socket := start(t, service{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Health(ctx, socket); err == nil || !strings.Contains(err.Error(), "DeadlineExceeded") {
		t.Errorf("error %v", err)
	}
}

// TestWire: the bytes are the exporter's, whose messages have more fields than are asked for here.
func TestWire(t *testing.T) {
	if got, want := MetricsService_List_FullMethodName, "/nicmetricssvc.MetricsService/List"; got != want {
		t.Errorf("method %s, want %s", got, want)
	}
	var response NICStateResponse
	// Device, Health, UUID
	state := "\x0a\x0c0000:06:00.0\x12\x09unhealthy\x1a\x04uuid"
	if err := proto.Unmarshal([]byte("\x0a"+string(rune(len(state)))+state), &response); err != nil {
		t.Fatal(err)
	}
	if s := response.GetNICState()[0]; s.GetDevice() != "0000:06:00.0" || s.GetHealth() != "unhealthy" {
		t.Errorf("%v", s)
	}
}
