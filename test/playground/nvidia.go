// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/health"
	"github.com/tandem-k8s/tandem/topology"
)

// standIns stand in for the GPUs of tandem-gpu on a playground with NVIDIA GPUs: a recording has no library
// of the driver (NVML), by which tandem-gpu finds such GPUs. The stand-in is the plugin of tandem-gpu on GPUs
// that sysfs names, by the numbers of their device nodes, with the health that sysfs shows. Their UUIDs are
// made up, and partitions (MIG), links, memory and NVML's health are absent. They implement gpu.Backend.
type standIns struct {
	maker   gpu.Maker
	devices []gpu.Device
}

var _ gpu.Backend = (*standIns)(nil)

// findNVIDIA returns the GPUs of a machine.
func findNVIDIA(tree *topology.Tree) *standIns {
	g := &standIns{}
	g.maker, _ = gpu.MakerOf(gpu.NVIDIA) // the table has the vendor
	for d := range tree.Devices() {
		if gpu.Vendor(d) != gpu.NVIDIA || d.Driver != g.maker.Driver {
			continue
		}
		number := len(g.devices)
		g.devices = append(g.devices, gpu.Device{
			ID:   "GPU-" + uuid.NewSHA1(uuid.NameSpaceOID, []byte(d.Address.String())).String(),
			Card: d.Address, NUMA: d.NUMA, Healthy: true, Index: fmt.Sprint(number),
			Nodes: []string{fmt.Sprint("/dev/nvidia", number)},
		})
	}
	return g
}

// cards returns the functions of the GPUs, by the IDs of their devices.
func (g *standIns) cards() map[string]topology.Address {
	cards := map[string]topology.Address{}
	for _, d := range g.devices {
		cards[d.ID] = d.Card
	}
	return cards
}

// Discover implements gpu.Backend.
func (g *standIns) Discover() (gpu.Inventory, error) {
	return gpu.Inventory{Resources: map[string][]gpu.Device{g.maker.Resource: g.devices}}, nil
}

// Links implements gpu.Backend: they are unknown.
func (g *standIns) Links() ([]topology.Link, error) { return nil, nil }

// sharedNodes are the device nodes that CUDA opens besides those of the GPUs.
var sharedNodes = []string{"/dev/nvidiactl", "/dev/nvidia-uvm"}

// Edits implements gpu.Backend: the variable of NVIDIA's container runtime, and the device nodes that the
// runtime adds.
func (g *standIns) Edits(devices []gpu.Device) (edits container.Edits) {
	var ids []string
	nodes := sharedNodes
	for _, d := range devices {
		ids, nodes = append(ids, d.ID), append(nodes, d.Nodes...)
	}
	edits.Set("NVIDIA_VISIBLE_DEVICES", strings.Join(ids, ","))
	for _, path := range nodes {
		edits.AddNodes(container.Node{Path: path, Host: path})
	}
	return edits
}

// deviceNodes returns the device nodes of the machine.
func (g *standIns) deviceNodes() []string {
	nodes := sharedNodes
	for _, d := range g.devices {
		nodes = append(nodes, d.Nodes...)
	}
	return nodes
}

// writeProc writes the driver's files about the GPUs below a folder in place of /proc.
func (g *standIns) writeProc(proc string) error {
	for _, d := range g.devices {
		dir := filepath.Join(proc, "driver/nvidia/gpus", d.Card.String())
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("write the driver's files: %w", err)
		}
		text := fmt.Sprintf("GPU UUID: \t %s\nDevice Minor: \t %s\n", d.ID, d.Index)
		if err := os.WriteFile(filepath.Join(dir, "information"), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write the driver's files: %w", err)
		}
	}
	return nil
}

// run offers the GPUs to the kubelet, coordinated with tandem-rdma, until ctx is done. Their health is that
// of tandem-gpu by default.
func (g *standIns) run(ctx context.Context, at Layout, log *slog.Logger) error {
	node, err := coordination.New(coordination.Config{
		RunDir: at.RunDir(), SysRoot: at.SysfsRoot(), KubeletDir: at.KubeletDir(), Log: log,
		Kubelet: kubelet.ConfigFiles{Config: filepath.Join(at.KubeletDir(), kubelet.ConfigFile)},
	})
	if err != nil {
		return err
	}
	found, err := gpu.Discover(g, 0, log)
	if err != nil {
		return err
	}
	found.Heed(health.New(health.Default(), os.DirFS(at.SysfsRoot())))
	name := g.maker.Resource
	server, err := deviceplugin.New(deviceplugin.Options{
		KubeletDir: at.KubeletDir(), Registration: deviceplugin.Register, Preferred: true, Log: log,
	}, gpu.NewPlugin(name, found, node.Member(name, device.GPU), log))
	if err != nil {
		return err
	}
	work, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{node.Run, found.Run, server.Run} {
		work.Go(func() error { return run(ctx) })
	}
	return work.Wait()
}
