// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/test/golden"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	standin "github.com/tandem-k8s/tandem/test/podresources"
	"github.com/tandem-k8s/tandem/topology"
)

// TestStatusOfMachines: the printed status of recorded machines in all states.
func TestStatusOfMachines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, machine string
		perPF         int
		change        func(gpus, vfs *api.Resource, a *api.StatusResponse)
		kubelet       string // its registered resources; "" for an absent kubelet
		coloured      string
	}{
		{"free", "oci-mi300x-derived", 4, nil, "amd.com/gpu tandem.dev/rdma_vf", "green kubelet up"},
		{"used", "oci-mi300x-derived", 4, func(gpus, vfs *api.Resource, a *api.StatusResponse) {
			g, v := gpus.GetDevices(), vfs.GetDevices()
			give("team/train-0/worker", g[0], g[1], v[0], v[4])
			give("team/train-1/worker", g[2], g[3], v[8], v[1]) // one VF is on another switch
			give("infer/one/main", v[2])
			give("infer/two/main", v[3])
			g[4].Device.Healthy = false
			ended := &api.Owner{Namespace: "team", Pod: "over", Container: "worker"}
			v[16].Ended, g[5].Ended = ended, ended
			a.Plan = &api.Plan{Devices: map[string]*api.DeviceList{
				vfs.GetName(): {Ids: []string{v[24].GetDevice().GetId()}},
			}}
		}, "amd.com/gpu", "green kubelet up, red unhealthy, yellow DEGRADED, yellow NOT REGISTERED"},
		{"stale", "oci-mi300x-derived", 1, func(_, vfs *api.Resource, a *api.StatusResponse) {
			vfs.Connected = false
			a.Peers = a.GetPeers()[:1]
		}, "", "red KUBELET DOWN, red kubelet down, yellow STALE"},
		{"no-numa", "nv-a100pcie-cx6dx-vf-partial", 0, nil, "amd.com/gpu tandem.dev/rdma_vf", "green kubelet up"},
		{"no-switch", "nv-h200-vm-flat", 1, func(gpus, vfs *api.Resource, _ *api.StatusResponse) {
			give("team/train-0/worker", gpus.GetDevices()[0], vfs.GetDevices()[0])
		}, "amd.com/gpu tandem.dev/rdma_vf", "green kubelet up, yellow DEGRADED"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			answer := onMachine(t, c.machine, c.perPF)
			if c.change != nil {
				c.change(answer.GetResources()[0], answer.GetResources()[1], answer)
			}
			root := t.TempDir()
			plugins{status: answer}.run(t, filepath.Join(root, "run"))
			kubeletDir := filepath.Join(root, "kubelet")
			serveKubelet(t, kubeletDir, answer, strings.Fields(c.kubelet))
			ask := []string{"status", "--run-dir", filepath.Join(root, "run"), "--kubelet-dir", kubeletDir}
			var words colours
			for file, format := range map[string]string{"": "table", "-wide": "wide"} {
				shown := words.strip(succeed(t, append(ask, "-o", format, "--color=always")...))
				golden.Check(t, "testdata/status-"+c.name+file+".txt", strings.ReplaceAll(shown, root, "ROOT"))
			}
			words.check(t, c.coloured)
			var s coordinator.Status
			ready(t, json.Unmarshal([]byte(succeed(t, append(ask, "-o", "json")...)), &s))
			if s.Kubelet == nil || (s.Kubelet.State == "up") != (c.kubelet != "") ||
				s.Totals.GPUs.All != len(answer.GetResources()[0].GetDevices()) {
				t.Errorf("JSON has %+v, %+v", s.Kubelet, s.Totals)
			}
		})
	}
}

// serveKubelet creates a kubelet's folder, and a kubelet with the devices of each registered resource, or
// none.
func serveKubelet(t *testing.T, dir string, answer *api.StatusResponse, resources []string) {
	t.Helper()
	devices := idsOf(answer)
	maps.DeleteFunc(devices, func(name string, _ []string) bool { return !slices.Contains(resources, name) })
	if len(resources) > 0 {
		standin.Serve(t, dir, podResources{devices: devices})
	} else if err := os.MkdirAll(filepath.Join(dir, "pod-resources"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestOneNameOfASwitch: status, the picture and the published object use the same name for a switch.
func TestOneNameOfASwitch(t *testing.T) {
	t.Parallel()
	const port, upstream = "0000:3c:00.0", "0000:3d:00.0"
	runDir := filepath.Join(t.TempDir(), "run")
	plugins{status: onMachine(t, "oci-mi300x-derived", 4)}.run(t, runDir)
	for name, got := range map[string]string{
		"status":      succeed(t, "status", "--run-dir", runDir, "--kubelet-dir", t.TempDir()),
		"topo -o svg": succeed(t, "topo", "-o", "svg", "--machine", recorded("oci-mi300x-derived")),
		"topo -o resourceslices": succeed(t, "topo", "-o", "resourceslices", "--machine",
			recorded("oci-mi300x-derived")),
	} {
		got = strings.ReplaceAll(got, port+" › "+upstream, "") // the way there
		if !strings.Contains(got, upstream) || strings.Contains(got, port) {
			t.Errorf("%s does not call the switch %s:\n%.2000s", name, upstream, got)
		}
	}
}

// halves is the driver of one GPU with 80 GiB, offered as two parts.
type halves struct{ card topology.Address }

func (h halves) Discover() (gpu.Inventory, error) {
	part := gpu.Device{ID: "MIG-0", Card: h.card, VRAM: 80 << 30, Healthy: true}
	other := part
	other.ID = "MIG-1"
	return gpu.Inventory{Resources: map[string][]gpu.Device{"nvidia.com/mig-3g.40gb": {part, other}}}, nil
}

func (halves) Links() ([]topology.Link, error)    { return nil, nil }
func (halves) Edits([]gpu.Device) container.Edits { return container.Edits{} }

// TestTopoVRAM: if sysfs lacks a GPU's memory, the plugin provides it: the memory of the card, however
// divided.
func TestTopoVRAM(t *testing.T) {
	t.Parallel()
	sys := sysfs(t, "nv-h100-oci", 0)
	dir := kubelettest.Dir(t)
	runDir := filepath.Join(dir, "run")
	if before := succeed(t, "topo", "--sysfs-root", sys, "--run-dir", runDir); strings.Contains(before, "GiB") {
		t.Errorf("without plugins:\n%s", before)
	}
	log := slog.New(slog.DiscardHandler)
	node, err := coordination.New(coordination.Config{RunDir: runDir, SysRoot: sys, KubeletDir: dir, Log: log})
	ready(t, err)
	card, err := topology.ParseAddress("0000:0f:00.0")
	ready(t, err)
	gpus, err := gpu.Discover(halves{card}, 0, log)
	ready(t, err)
	const name = "nvidia.com/mig-3g.40gb"
	plugin := gpu.NewPlugin(name, gpus, node.Member(name, device.GPU), log)
	ctx, cancel := context.WithCancel(context.Background())
	var g errgroup.Group
	g.Go(func() error { return node.Run(ctx) })
	g.Go(func() error { return plugin.Watch(ctx, func([]deviceplugin.Device) {}) })
	t.Cleanup(func() {
		cancel()
		if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("coordination: %v", err)
		}
	})
	var after string
	for limit := time.Now().Add(time.Minute); !strings.Contains(after, "GiB"); {
		if time.Now().After(limit) {
			t.Fatalf("with a plugin that knows:\n%s", after)
		}
		after = succeed(t, "topo", "--sysfs-root", sys, "--run-dir", runDir)
	}
	if !strings.Contains(after, ", 80 GiB\n") || strings.Count(after, "GiB") != 1 {
		t.Errorf("with a plugin that knows of one GPU:\n%s", after)
	}
}

// Listening on an address other than loopback works with a warning; a signal ends the server successfully.
func TestServeOpen(t *testing.T) {
	for address, warned := range map[string]bool{"0.0.0.0:0": true, ":0": false} {
		stderr := serveOnce(t, "status", "--serve", address, "--run-dir", t.TempDir())
		if got := strings.HasPrefix(stderr, "WARNING: "); got != warned {
			t.Errorf("%s: standard error %q", address, stderr)
		}
	}
}

// serveOnce runs a command that serves until a signal, and returns its standard error.
func serveOnce(t *testing.T, args ...string) string {
	t.Helper()
	stdout, out := io.Pipe()
	var stderr bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- cli.Execute(newRoot(), args, out, &stderr)
		out.Close()
	}()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "http://") {
		t.Fatalf("tandem %q: %q, %v, %s", args, line, err, &stderr)
	}
	ready(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	if got := <-code; got != cli.ExitOK {
		t.Errorf("tandem %q: exit code %d, %s", args, got, &stderr)
	}
	return stderr.String()
}
