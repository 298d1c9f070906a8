// SPDX-License-Identifier: Apache-2.0

package gpu_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	"github.com/tandem-k8s/tandem/test/kubelettest"
)

// twoGPUs lays a small machine out in a folder: two GPUs, the second on no NUMA node.
func twoGPUs(t *testing.T) string {
	t.Helper()
	root := grown(t, 2, false)
	file := filepath.Join(root, "devices/pci0000:11/0000:11:00.0/numa_node")
	if err := errors.Join(os.Remove(file), os.WriteFile(file, []byte("-1\n"), 0o444)); err != nil {
		t.Fatal(err)
	}
	return root
}

// lines collects a JSON log by message.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) with(t *testing.T, msg string) (found []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if entry["msg"] == msg {
			found = append(found, entry)
		}
	}
	return found
}

// run starts what tandem-gpu starts and returns it as the kubelet sees it, and the plugin itself: that
// answers what the kubelet hears of it in time, however slow the computer is.
func run(t *testing.T, root string, log *slog.Logger) (*kubelettest.Plugin, *gpu.Plugin) {
	t.Helper()
	dir := kubelettest.Dir(t)
	kubelet := kubelettest.Start(t, dir)
	backend, err := amd.New(os.DirFS(root), amd.Single)
	if err != nil {
		t.Fatal(err)
	}
	gpus, err := gpu.Discover(backend, 0, log)
	if err != nil {
		t.Fatal(err)
	}
	node, err := coordination.New(coordination.Config{
		RunDir: filepath.Join(dir, "run"), SysRoot: root, KubeletDir: dir, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	plugin := gpu.NewPlugin("amd.com/gpu", gpus, node.Member("amd.com/gpu", device.GPU), log)
	server, err := deviceplugin.New(deviceplugin.Options{KubeletDir: dir, Preferred: true, Log: log}, plugin)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	g, ctx := errgroup.WithContext(ctx)
	for _, work := range []func(context.Context) error{node.Run, gpus.Run, server.Run} {
		g.Go(func() error { return work(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		if err := g.Wait(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return kubelettest.Await(t, kubelet.Plugins), plugin
}

func TestPluginUnderKubelet(t *testing.T) {
	t.Attr("parity", "amd/topology")
	t.Attr("parity", "all/id-stability")
	t.Attr("parity", "all/numa-minus-one")
	t.Attr("parity", "amd/options-fallback")
	t.Attr("parity", "amd/allocate-devices")
	var log lines
	plugin, itself := run(t, twoGPUs(t), slog.New(slog.NewJSONHandler(&log, nil)))
	if plugin.Request.GetResourceName() != "amd.com/gpu" ||
		!plugin.Options.GetGetPreferredAllocationAvailable() {
		t.Errorf("registered as %v", plugin.Request)
	}
	var seen []string
	for _, d := range kubelettest.Await(t, plugin.Lists) {
		seen = append(seen, fmt.Sprint(d.GetID(), " ", d.GetHealth(), " ", len(d.GetTopology().GetNodes()), " ",
			d.GetTopology() != nil))
	}
	if got, want := strings.Join(seen, ", "),
		"0000:10:00.0 Healthy 1 true, 0000:11:00.0 Healthy 0 false"; got != want {
		t.Errorf("devices %s, want %s", got, want)
	}
	if chosen, err := plugin.Prefer(t.Context(), []string{"0000:11:00.0", "0000:10:00.0"}, nil, 1); err != nil ||
		len(chosen) != 1 {
		t.Fatalf("preferred %v, %v", chosen, err)
	}
	answer, err := plugin.Allocate(t.Context(), "0000:10:00.0", "0000:11:00.0")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := paths(answer),
		"/dev/kfd /dev/dri/card0 /dev/dri/renderD128 /dev/dri/card1 /dev/dri/renderD129"; got != want {
		t.Errorf("devices %s, want %s", got, want)
	}
	if answer, err = plugin.Allocate(t.Context(), "0000:ff:00.0"); err != nil || paths(answer) != "/dev/kfd" {
		t.Errorf("unknown device: %v, %v", answer, err)
	}

	allocated := log.with(t, "allocated")
	if len(allocated) != 2 ||
		fmt.Sprint(allocated[0]["resource"], allocated[0]["devices"]) != "amd.com/gpu[0000:10:00.0 0000:11:00.0]" ||
		fmt.Sprint(allocated[1]["unknown"]) != "[0000:ff:00.0]" {
		t.Errorf("allocate lines %v", allocated)
	}
	chosen := choose(t, itself, []string{"0000:11:00.0", "0000:10:00.0"}, 2)
	preferred := log.with(t, "preferred")
	if !slices.ContainsFunc(preferred,
		func(line map[string]any) bool { return fmt.Sprint(line["chosen"]) == fmt.Sprint(chosen) }) {
		t.Errorf("prefer lines %v, chosen %v", preferred, chosen)
	}
}

// choose answers a question as the kubelet's side of a plugin does: by the coordinator, else alone.
func choose(t *testing.T, p *gpu.Plugin, available []string, size int) []string {
	t.Helper()
	q := &api.PreferRequest{Resource: p.Name(), Available: available, Size: uint32(size)}
	chosen, err := p.Prefer(t.Context(), q)
	if err != nil {
		return p.Alone(q, err)
	}
	return chosen
}

func paths(answer *v1beta1.ContainerAllocateResponse) string {
	var list []string
	for _, d := range answer.GetDevices() {
		if d.GetContainerPath() != d.GetHostPath() || d.GetPermissions() != "rw" {
			list = append(list, "bad:"+d.String())
		}
		list = append(list, d.GetHostPath())
	}
	return strings.Join(list, " ")
}
