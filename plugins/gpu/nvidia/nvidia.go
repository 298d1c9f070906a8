// SPDX-License-Identifier: Apache-2.0

// Package nvidia finds NVIDIA GPUs through NVML, the driver's own library.
//
// NVML is read when the plugin starts and when an NVML event reports a change; the kubelet's calls use the
// last result. An unresponsive GPU is omitted or, once it was offered, unhealthy; the others are not
// affected.
//
//	nvidia.go    the backend; NVLinks to links between cards
//	library.go   NVML's data as plain values; nvml.go and events.go read them
//	discover.go  GPUs and MIG devices to devices under resource names
//	sharing.go   replicas of devices
//	health.go    Xids and the driver's recovery actions; marks.go the broken devices
//	allocate.go  the edits for a container; cdi.go and nvcdi.go the CDI specifications
//
// Package settings merges flags, environment and configuration file.
//
// Device IDs, resource names, flags, configuration files and the answers to the kubelet equal those of
// NVIDIA's own plugin (github.com/NVIDIA/k8s-device-plugin), so that a node can change from one plugin to the
// other under running pods.
package nvidia

import (
	"cmp"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/nvidia/settings"
	"github.com/tandem-k8s/tandem/topology"
)

var (
	_ gpu.Backend = (*Backend)(nil)
	_ gpu.Watcher = (*Backend)(nil)
	_ gpu.Refuser = (*Backend)(nil)
	_ gpu.Sharer  = (*Backend)(nil)
)

// Backend provides the NVIDIA GPUs of a node.
type Backend struct {
	config   settings.Config
	machine  Machine
	log      *slog.Logger
	lib      library
	channels []channel // IMEX channels to give containers
	read     bool      // NVML answered once
	kind     any       // with --mig-strategy=single, the last common kind of all GPUs

	health watched

	mu     sync.Mutex         // never held during a call to NVML
	extras []string           // additional CDI devices of every container
	files  map[string]written // CDI specifications, by path
	behind bool               // the CDI specifications could not be written at the last look
	nodes  nodes              // at the last look
}

// Close shuts NVML down.
func (b *Backend) Close() { b.lib.close() }

// Warnings returns the warnings about the configuration.
func (b *Backend) Warnings() []string { return b.config.Warnings }

// Open initializes NVML. It returns ErrNoDriver if NVIDIA's driver is absent or not loaded completely.
func Open(config settings.Config, machine Machine, log *slog.Logger) (*Backend, error) {
	if machine.Recheck == 0 {
		machine.Recheck = 30 * time.Second
	}
	b := &Backend{config: config, machine: machine, log: log}
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

// Discover reads NVML. The first call returns an error if NVML does not respond or if the GPUs contradict the
// MIG strategy. Later calls report as unhealthy all GPUs while NVML does not respond, and GPUs that differ
// from the last common kind.
func (b *Backend) Discover() (gpu.Inventory, error) {
	cards, err := b.lib.cards()
	if err != nil && !b.read {
		return gpu.Inventory{}, fmt.Errorf("read NVML: %w", err)
	}
	if err != nil {
		b.health.remember(nil, err)
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
	broken := b.health.forgive(cards, b.config.XidRecovery, b.machine.Recheck)
	d := discovery{
		config: &b.config, machine: b.machine, broken: broken, kind: b.kind,
		nodes: newNodes(&b.config, b.machine.DevRoot),
	}
	inventory := d.inventory(cards)
	if err := b.describe(cards, d.nodes); err != nil {
		if !b.read {
			return gpu.Inventory{}, err
		}
		inventory.Notes = append(inventory.Notes, err.Error())
	}
	b.read = true
	b.health.remember(cards, nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes = d.nodes
	return inventory, nil
}

// describe writes the CDI specifications, if any are in use, with new content each time: after a reload the
// driver can have other files for the same GPUs.
func (b *Backend) describe(cards []card, nodes nodes) error {
	if some, _ := b.config.CDI(); !some {
		return nil
	}
	s := specs{
		config: &b.config, channels: b.channels, complete: true, dir: b.machine.CDIRoot, log: b.log,
		before: b.files, files: map[string]written{}, first: !b.read,
	}
	for _, c := range cards {
		if c.err != nil || nodes.lack[c.uuid] {
			s.complete = false
			continue
		}
		if !c.mig {
			s.uuids = append(s.uuids, c.uuid)
		}
		for _, part := range c.slices {
			if part.err == nil && !nodes.lack[part.uuid] {
				s.uuids = append(s.uuids, part.uuid)
			} else {
				s.complete = false
			}
		}
	}
	extras, err := b.lib.writeSpecs(s)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.behind = err != nil; b.behind {
		return err
	}
	b.extras, b.files = extras, s.files
	return nil
}

// Links returns the NVLinks of the last discovery.
func (b *Backend) Links() ([]topology.Link, error) {
	return links(b.health.cards()), nil
}

// links returns the NVLinks by pair of GPUs. NVSwitches connect all their GPUs, so the links of a GPU to
// NVSwitches count for every other GPU.
func links(cards []card) []topology.Link {
	var list []topology.Link
	for i := range cards {
		for j := i + 1; j < len(cards); j++ {
			a, b := &cards[i], &cards[j]
			if a.err != nil || b.err != nil {
				continue
			}
			// Both ends count the same links; a link with one end down does not count.
			count := min(a.peers[b.address], b.peers[a.address]) + min(a.switched, b.switched)
			if count == 0 {
				continue
			}
			if a.address.Compare(b.address) > 0 {
				a, b = b, a
			}
			list = append(list, topology.Link{
				A: a.address, B: b.address, Type: topology.NVLink, Hops: 1, Count: count,
			})
		}
	}
	return list
}

// Replicas returns the policy for shared GPUs.
func (b *Backend) Replicas() device.Replicas { return device.Replicas(b.config.SharedPolicy) }

// share returns replicas of every device of a shared resource: <ID>::0, <ID>::1 and so on.
func share(s settings.Sharing, resources map[string][]gpu.Device) map[string][]gpu.Device {
	shared := make(map[string][]gpu.Device, len(resources))
	for resource, devices := range resources {
		replicas := s.Replicas[resource]
		if replicas == 0 {
			shared[resource] = append(shared[resource], devices...)
			continue
		}
		if s.Rename {
			resource += settings.SharedSuffix
		}
		for _, d := range devices {
			id := d.ID
			for n := range replicas {
				d.ID = topology.ReplicaID(id, n)
				shared[resource] = append(shared[resource], d)
			}
		}
	}
	return shared
}

// original returns the device ID of a replica, or the ID itself.
func original(id string) string {
	id, _ = topology.CutReplica(id)
	return id
}

func isReplica(id string) bool {
	_, replica := topology.CutReplica(id)
	return replica
}
