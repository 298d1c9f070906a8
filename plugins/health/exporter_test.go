// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

// start starts an exporter that answers one method, or hangs without an answer.
func start(t *testing.T, method string, answer proto.Message) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if called, _ := grpc.MethodFromServerStream(stream); called != method {
			t.Errorf("method %s, want %s", called, method)
		}
		if answer == nil {
			<-stream.Context().Done()
			return stream.Context().Err()
		}
		if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
			return err
		}
		return stream.SendMsg(answer)
	}))
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return socket
}

func TestGPUHealth(t *testing.T) {
	t.Attr("parity", "amd/health-exporter")
	socket := start(t, "/metricssvc.MetricsService/List", &GPUStateResponse{GPUState: []*GPUState{
		{Device: "0000:19:00.0", Health: "healthy"},
		{Device: "0000:a7:00.0", Health: "unhealthy"},
		{Device: "0000:b7:00.0", Health: "unknown"},
		{Device: "0000:c7:00.0"},
	}})
	got, err := GPUHealth(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{
		"0000:19:00.0": true, "0000:a7:00.0": false, "0000:b7:00.0": true, "0000:c7:00.0": true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNICHealth(t *testing.T) {
	t.Attr("parity", "amdnic/health-exporter")
	socket := start(t, "/nicmetricssvc.MetricsService/List", &NICStateResponse{NICState: []*NICState{
		{Device: "0000:06:00.0", Health: "healthy"},
		{Device: "0000:06:00.1", Health: "HEALTHY"},
		{Device: "0000:23:00.0", Health: "unhealthy"},
		{Device: "0000:43:00.0", Health: "unknown"},
		{Device: "0000:66:00.0"},
	}})
	got, err := NICHealth(t.Context(), socket)
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

// asks are the two questions.
var asks = map[string]func(context.Context, string) (map[string]bool, error){
	listGPUs: GPUHealth, listNICs: NICHealth,
}

func TestNoExporter(t *testing.T) {
	for method, ask := range asks {
		if got, err := ask(t.Context(), filepath.Join(t.TempDir(), "none")); got != nil || err != nil {
			t.Errorf("%s: %v, %v", method, got, err)
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
		if _, err := ask(t.Context(), socket); err == nil || !strings.Contains(err.Error(), "Unavailable") {
			t.Errorf("%s: dead exporter: %v", method, err)
		}
	}
}

func TestExporterHangs(t *testing.T) {
	for method, ask := range asks {
		socket := start(t, method, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := ask(ctx, socket)
		cancel()
		if err == nil || !strings.Contains(err.Error(), "DeadlineExceeded") {
			t.Errorf("%s: error %v", method, err)
		}
	}
}

// An exporter without devices is one.
func TestNoDevices(t *testing.T) {
	for method, ask := range asks {
		got, err := ask(t.Context(), start(t, method, &emptypb.Empty{}))
		if got == nil || len(got) > 0 || err != nil {
			t.Errorf("%s: %v, %v", method, got, err)
		}
	}
}

// TestWire: the bytes are the exporter's, whose messages have more fields than are asked for here.
func TestWire(t *testing.T) {
	var gpus GPUStateResponse
	// ID, UUID, Health, AssociatedWorkload, Device
	unmarshal(t, "\x0a\x010\x12\x04uuid\x1a\x09unhealthy\x22\x03pod\x2a\x0c0000:19:00.0", &gpus)
	if s := gpus.GetGPUState()[0]; s.GetDevice() != "0000:19:00.0" || s.GetHealth() != "unhealthy" {
		t.Errorf("%v", s)
	}
	var nics NICStateResponse
	// Device, Health, UUID
	unmarshal(t, "\x0a\x0c0000:06:00.0\x12\x09unhealthy\x1a\x04uuid", &nics)
	if s := nics.GetNICState()[0]; s.GetDevice() != "0000:06:00.0" || s.GetHealth() != "unhealthy" {
		t.Errorf("%v", s)
	}
}

// unmarshal decodes a response with one state.
func unmarshal(t *testing.T, state string, response proto.Message) {
	t.Helper()
	if err := proto.Unmarshal([]byte("\x0a"+string(rune(len(state)))+state), response); err != nil {
		t.Fatal(err)
	}
}
