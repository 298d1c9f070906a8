// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/cmd/internal/gpus"
	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	exporter "github.com/tandem-k8s/tandem/plugins/health"
	"github.com/tandem-k8s/tandem/test/kubelettest"
)

// replace gives a file of the machine another content.
func replace(t *testing.T, file, content string) {
	t.Helper()
	next := file + ".next"
	if err := os.WriteFile(next, []byte(content+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, file); err != nil {
		t.Fatal(err)
	}
}

// awaitHealth waits for a device list with exactly these unhealthy devices.
func awaitHealth(t *testing.T, plugin *kubelettest.Plugin, want string) {
	t.Helper()
	for unhealthy(kubelettest.Await(t, plugin.Lists)) != want {
		continue
	}
}

func unhealthy(list []*v1beta1.Device) string {
	var ids []string
	for _, d := range list {
		if d.GetHealth() != v1beta1.Healthy {
			ids = append(ids, d.GetID())
		}
	}
	return strings.Join(ids, " ")
}

// TestPartitioningChanges: the resource of a new partitioning is offered without a restart, the old one's
// devices stay listed, and both resources see every change.
func TestPartitioningChanges(t *testing.T) {
	t.Attr("parity", "amd/resource-name-mixed")
	t.Attr("parity", "amd/health-all-resources")
	flags := layout(t, "oci-mi300x-derived")
	cards := filepath.Join(flags.SysfsRoot, "bus/pci/drivers/amdgpu")
	kubelet := kubelettest.Start(t, flags.KubeletDir)
	start(t, flags, pulsing(amd.Mixed, 10*time.Millisecond))
	spx := kubelettest.Await(t, kubelet.Plugins)
	if got := spx.Request.GetResourceName(); got != "amd.com/spx_nps1" {
		t.Errorf("registered %s", got)
	}
	awaitHealth(t, spx, "")
	replace(t, filepath.Join(cards, "0000:11:00.0/current_compute_partition"), "CPX")
	cpx := kubelettest.Await(t, kubelet.Plugins)
	if got := cpx.Request.GetResourceName(); got != "amd.com/cpx_nps1" {
		t.Errorf("registered %s", got)
	}
	awaitHealth(t, spx, "0000:11:00.0")
	if devices := kubelettest.Await(t, cpx.Lists); len(devices) != 1 ||
		devices[0].GetHealth() != v1beta1.Healthy {
		t.Errorf("devices %v", devices)
	}
	for _, address := range []string{"0000:11:00.0", "0000:2f:00.0"} {
		if err := os.Remove(filepath.Join(cards, address)); err != nil {
			t.Fatal(err)
		}
	}
	awaitHealth(t, spx, "0000:11:00.0 0000:2f:00.0")
	awaitHealth(t, cpx, "0000:11:00.0")
}

// TestResourceLeftOut: a partitioning with an invalid resource name affects only the GPUs that have it.
func TestResourceLeftOut(t *testing.T) {
	flags := layout(t, "oci-mi300x-derived")
	replace(t, filepath.Join(flags.SysfsRoot, "bus/pci/drivers/amdgpu/0000:11:00.0/current_compute_partition"),
		"A NEW WAY")
	kubelet := kubelettest.Start(t, flags.KubeletDir)
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- run(ctx, flags, named(amd.Mixed), slog.New(slog.NewTextHandler(&log, nil))) }()
	plugin := kubelettest.Await(t, kubelet.Plugins)
	if devices := kubelettest.Await(t, plugin.Lists); plugin.Request.GetResourceName() != "amd.com/spx_nps1" ||
		len(devices) != 7 {
		t.Errorf("%s has %d devices", plugin.Request.GetResourceName(), len(devices))
	}
	cancel()
	if err := kubelettest.Await(t, result); err != nil {
		t.Error(err)
	}
	if text := log.String(); strings.Count(text, "resource not offered") != 1 ||
		!strings.Contains(text, "amd.com/a new way_nps1") {
		t.Errorf("log:\n%s", text)
	}
}

// metrics is the metrics exporter, with variable answers.
type metrics struct {
	mu     sync.Mutex
	health map[string]string
}

// answer implements the exporter's only method.
func (m *metrics) answer(_ any, stream grpc.ServerStream) error {
	if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	answer := &exporter.GPUStateResponse{}
	for device, health := range m.health {
		answer.GPUState = append(answer.GPUState, &exporter.GPUState{Device: device, Health: health})
	}
	return stream.SendMsg(answer)
}

func (m *metrics) say(health map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.health = health
}

func TestMetricsExporter(t *testing.T) {
	t.Attr("parity", "amd/health-exporter")
	flags := layout(t, "oci-mi300x-derived")
	socket := filepath.Join(flags.KubeletDir, "exporter")
	own := pulsing(amd.Single, 10*time.Millisecond)
	own.ExporterSocket = socket
	kubelet := kubelettest.Start(t, flags.KubeletDir)
	start(t, flags, own)
	plugin := kubelettest.Await(t, kubelet.Plugins)
	awaitHealth(t, plugin, "")

	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	m := &metrics{health: map[string]string{"0000:2f:00.0": "unhealthy", "0000:11:00.0": "unknown"}}
	server := grpc.NewServer(grpc.UnknownServiceHandler(m.answer))
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	awaitHealth(t, plugin, "0000:2f:00.0")
	m.say(map[string]string{"0000:2f:00.0": "healthy"})
	awaitHealth(t, plugin, "")
	m.say(map[string]string{"0000:46:00.0": "unhealthy"})
	awaitHealth(t, plugin, "0000:46:00.0")
	server.Stop()
	awaitHealth(t, plugin, "")
}

// away moves files and folders of the machine away, as if the kernel removed them; back restores them.
func away(t *testing.T, sys string, patterns ...string) (back func()) {
	t.Helper()
	var moved []string
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(sys, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("no %s: %v", pattern, err)
		}
		moved = append(moved, found...)
	}
	rename := func(old, new string) {
		if err := os.Rename(old, new); err != nil {
			t.Fatal(err)
		}
	}
	elsewhere := t.TempDir()
	for i, file := range moved {
		rename(file, filepath.Join(elsewhere, fmt.Sprint(i)))
	}
	return func() {
		for i, file := range slices.Backward(moved) {
			rename(filepath.Join(elsewhere, fmt.Sprint(i)), file)
		}
	}
}

// TestSimpleHealth: without the driver, or without a GPU in the KFD topology, no GPU is healthy; at the next
// pulse after that all are. Every upgrade of the driver has these steps.
func TestSimpleHealth(t *testing.T) {
	t.Attr("parity", "amd/health-simple")
	t.Attr("parity", "amd/flag-pulse")
	flags := layout(t, "oci-mi300x-derived")
	for name, gone := range map[string][]string{
		"no KFD":  {"class/kfd"},
		"unbound": {"class/kfd", "bus/pci/drivers/amdgpu/0000:*"},
		"rmmod amdgpu": {"class/kfd", "bus/pci/drivers/amdgpu/0000:*/drm", "bus/pci/drivers/amdgpu",
			"module/amdgpu"},
	} {
		t.Run(name, func(t *testing.T) {
			kubelet := kubelettest.Start(t, flags.KubeletDir)
			start(t, flags, pulsing(amd.Single, 10*time.Millisecond))
			plugin := kubelettest.Await(t, kubelet.Plugins)
			var all []string
			for _, d := range kubelettest.Await(t, plugin.Lists) {
				all = append(all, d.GetID())
			}
			for range 2 {
				back := away(t, flags.SysfsRoot, gone...)
				awaitHealth(t, plugin, strings.Join(all, " "))
				back()
				awaitHealth(t, plugin, "")
			}
			if answer, err := plugin.Allocate(t.Context(), all...); err != nil ||
				len(answer.GetDevices()) != 1+2*len(all) {
				t.Errorf("answer %v, %v", answer, err)
			}
		})
	}
}

func TestFlagsOfAMD(t *testing.T) {
	for _, c := range []struct {
		row  string
		args []string
		want string // of the error of parsing, or of making the backend; "" for none
	}{
		{"amd/flag-pulse", []string{"--pulse=30"}, ""},
		{"amd/flag-pulse", []string{"--pulse=0"}, ""},
		// AMD's own plugin takes it for never
		{"amd/flag-pulse", []string{"--pulse=-1"}, "want a number of seconds, or 0 for never"},
		{"amd/flag-pulse", []string{"--pulse=soon"}, "want a number of seconds"},
		{"amd/flag-naming", []string{"--resource_naming_strategy=mixed"}, ""},
		{"amd/flag-naming", []string{"--resource_naming_strategy=double"}, "want single or mixed"},
		{"amd/flag-driver-type", []string{"--driver_type=container"}, ""},
		{"amd/flag-driver-type", []string{"--driver_type="}, ""},
		{"amd/flag-driver-type", []string{"--driver_type=vf-passthrough"}, "want container"},
	} {
		t.Run(c.row+"/"+c.args[0], func(t *testing.T) {
			set := pflag.NewFlagSet("", pflag.ContinueOnError)
			set.SetOutput(io.Discard)
			var f gpus.AMD
			f.Register(set, nil)
			err := set.Parse(c.args)
			if err == nil {
				_, err = f.Backend(os.DirFS(t.TempDir()), "/dev", slog.New(slog.DiscardHandler))
			}
			if err != nil && c.want == "" || err == nil && c.want != "" ||
				err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}
