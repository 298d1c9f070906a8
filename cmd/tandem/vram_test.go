// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/topology"
)

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
	if err != nil {
		t.Fatal(err)
	}
	card, err := topology.ParseAddress("0000:0f:00.0")
	if err != nil {
		t.Fatal(err)
	}
	gpus, err := gpu.Discover(halves{card}, 0, log)
	if err != nil {
		t.Fatal(err)
	}
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
