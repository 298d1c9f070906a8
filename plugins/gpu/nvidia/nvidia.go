// SPDX-License-Identifier: Apache-2.0

// Package nvidia finds NVIDIA GPUs through NVML, the driver's own library.
//
// NVML is read when the plugin starts and when an NVML event reports a change; the kubelet's calls use the
// last result. An unresponsive GPU is omitted or, once it was offered, unhealthy; the others are not
// affected.
//
//	nvidia.go    the backend; NVLinks to links between cards; NVML's data as plain values, which nvml.go reads
//	discover.go  GPUs and MIG devices to devices under resource names
//	health.go    Xids, the driver's recovery actions, and the broken devices
//	allocate.go  the edits for a container, and whether its device nodes exist; nvcdi.go the CDI specifications
//
// config.go and settings.go merge the settings of NVIDIA's own plugin, all of which are accepted: flags,
// environment variables and the configuration file. They apply their precedence, reject invalid values, and
// warn of settings without effect.
//
// Device IDs, resource names, flags, configuration files and the answers to the kubelet equal those of
// NVIDIA's own plugin (github.com/NVIDIA/k8s-device-plugin), so that a node can change from one plugin to the
// other under running pods.
//
// # State: source; bound; refresh; precedence
//
//   - Xids: NVML's events; GPUs and MIG devices; a MIG mark ends when the GPU answers without the device; the
//     GPU.
//   - last answers of GPUs, for links and events: NVML; the node's GPUs; every check; NVML, none without it.
//   - IMEX channels: device nodes of the configured channels; these channels; the daemon's start; the start.
//   - existence of device nodes: the folder of the driver or the host; nodes of GPUs and MIG devices; every
//     check, and every 5 s; a GPU without its node is unhealthy.
//   - CDI files: the written contents; 5 files; every check, and every 5 s; the file is written again.
package nvidia

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/plugins/gpu"
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
	config   Config
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

// Open initializes NVML, and logs the warnings about the configuration. It returns a gpu.NoDriver if NVIDIA's
// driver is absent or not loaded completely.
func Open(config Config, machine Machine, log *slog.Logger) (*Backend, error) {
	if machine.Recheck == 0 {
		machine.Recheck = 30 * time.Second
	}
	b := &Backend{config: config, machine: machine, log: log}
	var err error
	b.channels, err = findChannels(&b.config, machine.DevRoot)
	if err != nil {
		return nil, err
	}
	if gpu.Loading(machine.Sys, "nvidia") {
		return nil, fmt.Errorf("%w: the kernel module nvidia is being loaded", errNoDriver)
	}
	b.lib, err = openLibrary(config.ContainerDriverRoot)
	if err != nil {
		return nil, err
	}
	for _, warning := range b.config.Warnings {
		log.Warn("note on the configuration", "warning", warning)
	}
	return b, nil
}

// Discover reads NVML. The first call returns an error if NVML does not respond or if the GPUs contradict the
// MIG strategy. Later calls report as unhealthy all GPUs while NVML does not respond, and GPUs that differ
// from the last common kind.
func (b *Backend) Discover() (gpu.Inventory, error) {
	cards, err := b.lib.readCards()
	if err != nil && !b.read {
		return gpu.Inventory{}, fmt.Errorf("read NVML: %w", err)
	}
	if err != nil {
		b.health.rememberCards(nil, err)
		return gpu.Inventory{
			Partial: true,
			Notes:   []string{fmt.Sprintf("NVML does not answer (%v): all GPUs are unhealthy until it does", err)},
		}, nil
	}
	if b.config.MIGStrategy == migSingle {
		kind, mixture := commonKind(cards)
		if mixture != nil && !b.read {
			return gpu.Inventory{}, mixture
		}
		b.kind = cmp.Or(kind, b.kind)
	}
	broken := b.health.forgiveRecovered(cards, b.config.XidRecovery, b.machine.Recheck)
	d := discovery{Backend: b, broken: broken, nodes: newNodes(&b.config, b.machine.DevRoot)}
	inventory := d.makeInventory(cards)
	if err := b.describeDevices(cards, d.nodes); err != nil {
		if !b.read {
			return gpu.Inventory{}, err
		}
		inventory.Notes = append(inventory.Notes, err.Error())
	}
	b.read = true
	b.health.rememberCards(cards, nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes = d.nodes
	return inventory, nil
}

// describeDevices writes the CDI specifications, if any are in use, with new content each time: after a
// reload the driver can have other files for the same GPUs.
func (b *Backend) describeDevices(cards []card, nodes nodes) error {
	if some, _ := b.config.CDI(); !some {
		return nil
	}
	s := specs{Backend: b, complete: true, written: map[string]written{}}
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
	b.behind = err != nil
	if b.behind {
		return err
	}
	b.extras, b.files = extras, s.written
	return nil
}

// Links returns the NVLinks of the last discovery.
func (b *Backend) Links() ([]topology.Link, error) {
	return findLinks(b.health.lastCards()), nil
}

// findLinks returns the NVLinks by pair of GPUs. NVSwitches connect all their GPUs, so the links of a GPU to
// NVSwitches count for every other GPU.
func findLinks(cards []card) []topology.Link {
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

// makeReplicas returns replicas of every device of a shared resource: <ID>::0, <ID>::1 and so on.
func makeReplicas(s sharing, resources map[string][]gpu.Device) map[string][]gpu.Device {
	shared := make(map[string][]gpu.Device, len(resources))
	for resource, devices := range resources {
		replicas := s.Replicas[resource]
		if replicas == 0 {
			shared[resource] = append(shared[resource], devices...)
			continue
		}
		if s.Rename {
			resource += sharedSuffix
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

// Machine is the location of the node's files.
type Machine struct {
	Sys     fs.FS         // /sys
	Proc    fs.FS         // /proc
	DevRoot string        // /dev
	CDIRoot string        // directory of CDI specifications, /var/run/cdi
	Recheck time.Duration // between two checks of a broken GPU; 0 means 30 s
}

// library is the used part of NVIDIA's driver: the state of all GPUs at once, and events. No method is called
// while the kubelet waits for an answer.
type library interface {
	// readCards lists the GPUs in NVML's order. An unresponsive GPU is in the list with its err; the returned
	// error means that NVML as a whole does not respond.
	readCards() ([]card, error)
	// events starts to listen to these GPUs, and returns the reasons for GPUs without events.
	events([]card) (eventSet, map[string]error, error)
	// writeSpecs writes the CDI specifications, except unchanged files, and returns the additional devices with
	// a specification.
	writeSpecs(specs) (extras []string, err error)
	// restart shuts NVML down and initializes NVML again, to use a reloaded driver.
	restart() error
	// close shuts NVML down.
	close()
}

// eventSet waits for events.
type eventSet interface {
	// wait returns the next event, or errNoEvent after the limit.
	wait(limit time.Duration) (event, error)
	free()
}

// errNoDriver means that NVIDIA's driver or its library is absent.
const errNoDriver = gpu.NoDriver("enter NVML")

var (
	errNoEvent = errors.New("no event")
	errTooOld  = errors.New("the GPU is too old to tell of errors") // offered as healthy
)

// card is a GPU as NVML reports it.
type card struct {
	index    int
	err      error // reason for missing data
	uuid     string
	name     string // "NVIDIA H100 80GB HBM3"
	address  topology.Address
	minor    int    // of /dev/nvidia<minor>
	memory   uint64 // bytes, 0 for unknown
	mig      bool   // MIG mode is on
	slices   []slice
	peers    map[topology.Address]int // NVLinks to other GPUs
	switched int                      // NVLinks to NVSwitches
	needs    recovery
}

// slice is a MIG device.
type slice struct {
	index   int
	err     error // reason for missing data
	uuid    string
	profile profile
	gi, ci  uint32 // its GPU instance and compute instance
}

// profile is the kind of a MIG device.
type profile struct {
	name       string // "1g.10gb"
	whole      bool   // has all compute slices of its GPU instance
	attributes any    // comparable; equal for MIG devices of one kind
}

// recovery is the need of a GPU for a reset or another action before further use
// (NVML_FI_DEV_GET_GPU_RECOVERY_ACTION in nvml.h).
type recovery int

const (
	recoveryUnknown recovery = iota // the driver is too old
	recoveryNone
	recoveryNeeded
)

// event is an NVML event.
type event struct {
	kind   eventKind
	uuid   string // of the GPU, "" if unknown
	xid    uint64
	gi, ci uint32 // the MIG device; wholeGPU for none
}

type eventKind int

const (
	otherEvent eventKind = iota
	xidEvent
	migEvent      // the MIG devices of the GPU changed
	recoveryEvent // the recovery action of the GPU changed
)

// wholeGPU is the instance of an event without a MIG device.
const wholeGPU = 0xffffffff

// libraryName is the file name of NVML.
const libraryName = "libnvidia-ml.so.1"

// libraryFolders are the driver folders of distributions, in the search order of NVIDIA's own plugin.
var libraryFolders = []string{
	"usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib64", "lib/x86_64-linux-gnu",
	"lib/aarch64-linux-gnu",
}

// findLibrary returns the path of NVML below a driver root. If the library is absent, findLibrary returns
// only the name, because the container runtime may have added the library to the loader's path.
func findLibrary(root string) string {
	if root == "" || root == "/" {
		return libraryName
	}
	for _, folder := range libraryFolders {
		if path, err := filepath.EvalSymlinks(filepath.Join(root, folder, libraryName)); err == nil {
			return path
		}
	}
	return libraryName
}
