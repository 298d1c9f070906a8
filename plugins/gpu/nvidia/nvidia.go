// Package nvidia finds NVIDIA GPUs through the driver's own library, NVML.
//
// NVML is read when the plugin starts and when one of its events says that something changed; the kubelet's questions are
// answered from what was read then. A GPU that does not answer is left out or, once it was offered, unhealthy, and the
// others are as they were.
//
//	library.go   what is asked of NVML, as plain data; nvml.go asks it
//	discover.go  GPUs and MIG devices to devices under resource names
//	sharing.go   every device several times over
//	links.go     NVLinks to links between cards
//	health.go    Xids and what the driver says about recovery
//	allocate.go  what a container is given; cdi.go the specifications that it may refer to
//	policy.go    which card the next part is taken from
//	settings.go  flags, variables and keys; config.go, file.go and load.go what they mean together
//
// Device IDs, resource names, flags, configuration files and the answers to the kubelet are those of NVIDIA's own plugin
// (github.com/NVIDIA/k8s-device-plugin), so that a node can change from one to the other under running pods.
package nvidia

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

// Backend is the NVIDIA GPUs of a node.
type Backend struct {
	config   Config
	machine  Machine
	log      *slog.Logger
	lib      library
	channels []channel // IMEX channels to give containers
	read     bool      // NVML answered once
	listed   []string  // UUIDs in the CDI specification

	mu     sync.Mutex // never held while NVML is asked
	known  []card
	broken map[string]mark // by the UUID of a GPU or MIG device
	extras []string        // CDI devices that every container gets beside its own
}

var (
	_ gpu.Backend  = (*Backend)(nil)
	_ gpu.Watcher  = (*Backend)(nil)
	_ gpu.Refuser  = (*Backend)(nil)
	_ gpu.Narrower = (*Backend)(nil)
)

// Machine is where the node's files are.
type Machine struct {
	Sys     fs.FS         // /sys
	Proc    fs.FS         // /proc
	DevRoot string        // /dev
	CDIRoot string        // where CDI specifications go, /var/run/cdi
	Recheck time.Duration // between two looks at a GPU that is broken, 30 s where it is 0
}

// Open enters NVML. It fails with ErrNoDriver where NVIDIA's driver is not there.
func Open(config Config, machine Machine, log *slog.Logger) (*Backend, error) {
	if machine.Recheck == 0 {
		machine.Recheck = 30 * time.Second
	}
	b := &Backend{config: config, machine: machine, log: log, broken: map[string]mark{}}
	var err error
	if b.channels, err = findChannels(&b.config, machine.DevRoot); err != nil {
		return nil, err
	}
	if b.lib, err = open(config.ContainerDriverRoot); err == nil {
		return b, nil
	}
	if some, _ := config.cdi(); some { // nothing to wait for, as with NVIDIA's own plugin
		err = errors.New(config.source("device-list-strategy") + " has a strategy of CDI, which needs NVML: " + err.Error())
	}
	return nil, err
}

// Close leaves NVML.
func (b *Backend) Close() { b.lib.close() }

// Warnings are what is to be logged about the configuration.
func (b *Backend) Warnings() []string { return b.config.Warnings }

// Discover reads NVML. It fails when that fails for the first time, and where the GPUs do not go with the MIG strategy;
// later all GPUs are unhealthy while NVML does not answer.
func (b *Backend) Discover() (gpu.Inventory, error) {
	cards, err := b.lib.cards()
	if err != nil && !b.read {
		return gpu.Inventory{}, fmt.Errorf("read NVML: %w", err)
	}
	if err != nil {
		b.remember(nil)
		return gpu.Inventory{Partial: true, Notes: []string{fmt.Sprintf("NVML does not answer (%v): all GPUs are unhealthy until it does", err)}}, nil
	}
	d := discovery{config: &b.config, machine: b.machine, broken: b.forgive(cards)}
	inventory, err := d.inventory(cards)
	if err != nil {
		return gpu.Inventory{}, err
	}
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

func (b *Backend) remember(cards []card) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known = cards
}

// Links counts NVLinks, as read last.
func (b *Backend) Links() ([]topology.Link, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return links(b.known), nil
}

// cards are the GPUs that answered last.
func (b *Backend) cards() []card {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.known
}
