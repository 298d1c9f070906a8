// SPDX-License-Identifier: Apache-2.0

package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
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

const shared = "nvidia.com/gpu.shared"

// sharing is a driver of two GPUs, each offered four times, with a rule.
type sharing struct{ rule device.Replicas }

func (sharing) Discover() (gpu.Inventory, error) {
	var devices []gpu.Device
	for card := range 2 {
		for n := range 4 {
			address := topology.Address{Bus: uint8(0x10 + card)}
			devices = append(devices, gpu.Device{ID: fmt.Sprintf("GPU-%d::%d", card, n), Card: address, Healthy: true})
		}
	}
	return gpu.Inventory{Resources: map[string][]gpu.Device{shared: devices}}, nil
}

func (sharing) Links() ([]topology.Link, error) { return nil, nil }

func (sharing) Edits([]gpu.Device) container.Edits { return container.Edits{} }

func (s sharing) Replicas() device.Replicas { return s.rule }

// TestRule: the driver's rule chooses among the replicas, and what it leaves out of a question is as free as
// before, for the coordinator too.
func TestRule(t *testing.T) {
	t.Attr("parity", "nvidia/preferred-shared-policy")
	for rule, want := range map[device.Replicas][]int{
		device.Packed: {0, 0, 0, 0, 1, 1}, device.Distributed: {0, 1, 0, 1, 0, 1},
	} {
		t.Run(string(rule), func(t *testing.T) { chooseByRule(t, rule, want) })
	}
}

// chooseByRule admits containers with one replica each, from these GPUs or, the other way around, the others.
func chooseByRule(t *testing.T, rule device.Replicas, want []int) {
	dir, log := kubelettest.Dir(t), slog.New(slog.DiscardHandler)
	gpus, err := gpu.Discover(sharing{rule}, 0, log)
	if err != nil {
		t.Fatal(err)
	}
	runDir := filepath.Join(dir, "run")
	node, err := coordination.New(coordination.Config{
		RunDir: runDir, SysRoot: twoGPUs(t), KubeletDir: dir, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	plugin := gpu.NewPlugin(shared, gpus, node.Member(shared, device.GPU), log)
	ctx, cancel := context.WithCancel(context.Background())
	var g errgroup.Group
	g.Go(func() error { return node.Run(ctx) })
	g.Go(func() error { return plugin.Watch(ctx, func([]deviceplugin.Device) {}) })
	t.Cleanup(func() {
		cancel()
		if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
	})
	var all, held []string
	for i := range 8 {
		all = append(all, fmt.Sprintf("GPU-%d::%d", i/4, i%4))
	}
	taken(t, runDir) // the plugin has joined
	for i := range want {
		available := slices.DeleteFunc(slices.Clone(all), func(id string) bool { return slices.Contains(held, id) })
		chosen := choose(t, plugin, available, 1)
		held = append(held, chosen...)
		if len(held) != i+1 || (held[i][:5] == held[0][:5]) != (want[i] == want[0]) {
			t.Fatalf("chosen %v in turn, %v last; want GPUs %v", held, chosen, want)
		}
		if _, err := plugin.Allocate(t.Context(), chosen); err != nil {
			t.Fatal(err)
		}
		for _, id := range taken(t, runDir) {
			if !slices.Contains(held, id) {
				t.Errorf("the coordinator takes %s for allocated, %v are", id, held)
			}
		}
	}
	if len(taken(t, runDir)) == 0 {
		t.Error("the coordinator knows of no allocation")
	}
}

// taken are the devices that the coordinator takes for allocated, once it knows of any device.
func taken(t *testing.T, runDir string) []string {
	t.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for began := time.Now(); time.Since(began) < kubelettest.Limit; <-look.C {
		answer, err := coordination.Status(t.Context(), runDir)
		if err != nil || len(answer.GetResources()) == 0 {
			continue
		}
		var ids []string
		for _, d := range answer.GetResources()[0].GetDevices() {
			if d.GetAllocated() {
				ids = append(ids, d.GetDevice().GetId())
			}
		}
		return ids
	}
	t.Fatal("the plugin did not join")
	return nil
}

// The unit of a device is the card or its part, whatever the resource, the ID and the number of a replica.
func TestUnit(t *testing.T) {
	t.Parallel()
	card := topology.Address{Bus: 0x81}
	for _, c := range []struct {
		d    gpu.Device
		want topology.Unit
	}{
		{gpu.Device{ID: "GPU-1", Card: card}, topology.Unit{Name: "0000:81:00.0"}},
		{gpu.Device{ID: "GPU-1::2", Card: card}, topology.Unit{Name: "0000:81:00.0", Shared: true}},
		{gpu.Device{ID: "MIG-1", Card: card, Part: "7-0"}, topology.Unit{Name: "0000:81:00.0/7-0"}},
		{gpu.Device{ID: "amdgpu_xcp_3", Card: card, Part: "3"}, topology.Unit{Name: "0000:81:00.0/3"}},
	} {
		if got := c.d.Announced().Unit; got != c.want {
			t.Errorf("the unit of %s is %v, want %v", c.d.ID, got, c.want)
		}
	}
}
