// Package nvidia finds NVIDIA GPUs through the driver's own library, NVML.
//
// NVML is read when the plugin starts and when one of its events says that something changed; the kubelet's
// questions are answered from what was read then. A GPU that does not answer is left out or, once it was
// offered, unhealthy, and the others are as they were.
//
//	backend.go   what is known of the node
//	library.go   what is asked of NVML, as plain data; nvml.go and events.go ask it
//	discover.go  GPUs and MIG devices to devices under resource names
//	sharing.go   every device several times over
//	links.go     NVLinks to links between cards
//	health.go    Xids and what the driver says about recovery; marks.go what is broken
//	allocate.go  what a container is given; cdi.go, specs.go and nvcdi.go the specifications it may refer to
//	policy.go    which card the next part is taken from
//
// What flags, environment and configuration file say together is package settings.
//
// Device IDs, resource names, flags, configuration files and the answers to the kubelet are those of NVIDIA's
// own plugin (github.com/NVIDIA/k8s-device-plugin), so that a node can change from one to the other under
// running pods.
package nvidia

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/nvidia/settings"
	"github.com/tandem-k8s/tandem/topology"
)

var (
	_ gpu.Backend  = (*Backend)(nil)
	_ gpu.Watcher  = (*Backend)(nil)
	_ gpu.Refuser  = (*Backend)(nil)
	_ gpu.Narrower = (*Backend)(nil)
)

// Open enters NVML. It fails with ErrNoDriver where NVIDIA's driver is not there, or not loaded completely.
func Open(config settings.Config, machine Machine, log *slog.Logger) (*Backend, error) {
	if machine.Recheck == 0 {
		machine.Recheck = 30 * time.Second
	}
	b := &Backend{config: config, machine: machine, log: log, broken: map[string]mark{}}
	var err error
	if b.channels, err = findChannels(&b.config, machine.DevRoot); err != nil {
		return nil, err
	}
	if gpu.Loading(machine.Sys, "nvidia") {
		return nil, fmt.Errorf("%w: the kernel module nvidia is being loaded", ErrNoDriver)
	}
	if b.lib, err = open(config.ContainerDriverRoot); err != nil {
		return nil, err
	}
	return b, nil
}

// Discover reads NVML. The first one fails when that fails, and where the GPUs do not go with the MIG
// strategy. Later all GPUs are unhealthy while NVML does not answer, and those that are divided otherwise
// than all were when last alike.
func (b *Backend) Discover() (gpu.Inventory, error) {
	cards, err := b.lib.cards()
	if err != nil && !b.read {
		return gpu.Inventory{}, fmt.Errorf("read NVML: %w", err)
	}
	if err != nil {
		b.remember(nil)
		return gpu.Inventory{
			Partial: true,
			Notes:   []string{fmt.Sprintf("NVML does not answer (%v): all GPUs are unhealthy until it does", err)},
		}, nil
	}
	if b.config.MIGStrategy == settings.MIGSingle {
		kind, mixture := alike(cards)
		if mixture != nil && !b.read {
			return gpu.Inventory{}, mixture
		}
		b.kind = cmp.Or(kind, b.kind)
	}
	d := discovery{config: &b.config, machine: b.machine, broken: b.forgive(cards), kind: b.kind}
	inventory := d.inventory(cards)
	if err := b.describe(cards); err != nil {
		if !b.read {
			return gpu.Inventory{}, err
		}
		inventory.Notes = append(inventory.Notes, err.Error())
	}
	b.read = true
	b.remember(cards)
	return inventory, nil
}

// Links counts NVLinks, as read last.
func (b *Backend) Links() ([]topology.Link, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return links(b.known), nil
}
