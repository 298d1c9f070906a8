// SPDX-License-Identifier: Apache-2.0

// Package nvml is a stand-in for NVIDIA's management library, for tests on machines without a GPU. The
// library itself is C (library/nvml.c), is built with cc and opened with dlopen as the real one is; what it
// shows is a [Machine], which this package makes up for a recorded machine, and writes to the text file that
// the library reads:
//
//	driver VERSION
//	error CODE                  every call fails with it, as NVML's return codes are numbered
//	trace FILE                  the names of the calls are appended there
//	gpu INDEX UUID BUS MINOR MEMORY MIG STATE RECOVERY NAME
//	deaf INDEX CODE             registering for its events fails with it
//	link INDEX BUS|switch COUNT
//	mig INDEX SLOT UUID GI CI GPU-PROFILE COMPUTE-PROFILE MEMORY
//
// Memory is in MiB; MIG is -1 for a GPU that has none, 0 for off, 1 for on; STATE is what calls about the GPU
// return, 0 or 15 for a lost one; RECOVERY is the action that the GPU needs, or -1 where the driver cannot
// say.
package nvml

import (
	"crypto/sha1"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/tandem-k8s/tandem/topology"
)

// Return codes of NVML (nvmlReturn_t).
const (
	NotSupported    = 3
	DriverNotLoaded = 9
	GPUIsLost       = 15
)

// Machine is what the library shows.
type Machine struct {
	Driver string
	Error  int    // what every call returns, 0 for none
	Trace  string // a file for the names of all calls, "" for none
	GPUs   []GPU
}

// GPU is one GPU, numbered by its place in the list.
type GPU struct {
	UUID     string
	Address  topology.Address
	Minor    int
	Memory   uint64 // MiB
	MIG      int    // -1 unsupported, 0 off, 1 on
	State    int    // return code of calls about it
	Deaf     int    // return code of registering for its events
	Recovery int    // -1 where the driver cannot say, 0 none, 1 reset
	Name     string
	Switch   int                      // links to NVSwitches
	Links    map[topology.Address]int // links to other GPUs
	Slices   []Slice                  // its MIG devices
}

// Slice is one MIG device. The profiles are the numbers of nvml.h: 0 to 4 are of 1, 2, 3, 4 and 7 slices.
type Slice struct {
	UUID                       string
	GI, CI                     int
	GPUProfile, ComputeProfile int
	Memory                     uint64 // MiB
}

// product is what a PCI device number says of a GPU.
type product struct {
	name   string
	memory uint64 // MiB
	mig    int
	links  int // to NVSwitches
}

var products = map[uint16]product{
	0x20b5: {"NVIDIA A100 80GB PCIe", 81920, 0, 0},
	0x2324: {"NVIDIA H800", 81559, 0, 8},
	0x2330: {"NVIDIA H100 80GB HBM3", 81559, 0, 18},
	0x2335: {"NVIDIA H200", 143771, 0, 18},
	0x26b1: {"NVIDIA RTX 6000 Ada Generation", 49140, -1, 0},
}

// Record makes the library's view of a machine's sysfs: the GPUs that the nvidia driver is bound to, in the
// order of their addresses, with UUIDs made up from those.
func Record(sys fs.FS) (Machine, error) {
	tree, err := topology.Read(sys)
	if err != nil {
		return Machine{}, err
	}
	m := Machine{Driver: "570.86.15"}
	for d := range tree.Devices() {
		if d.Driver != "nvidia" || !d.Class.IsGPU() {
			continue
		}
		p, known := products[d.Product]
		if !known {
			return Machine{}, fmt.Errorf("record NVML of %s: PCI device %#x is not in the list of products",
				d.Address, d.Product)
		}
		m.GPUs = append(m.GPUs, GPU{
			UUID: "GPU-" + MadeUp(d.Address.String()), Address: d.Address, Minor: len(m.GPUs),
			Memory: p.memory, MIG: p.mig, Name: p.name, Switch: p.links,
		})
	}
	return m, nil
}

// MadeUp is a UUID that is always the same for a text.
func MadeUp(text string) string {
	sum := sha1.Sum([]byte(text))
	id, _ := uuid.FromBytes(sum[:16])
	return id.String()
}

// Split turns MIG on and divides a GPU into slices of one profile, "1g.10gb" for profile 0 on 80 GB.
func (g *GPU) Split(count, profile int, memory uint64) {
	g.MIG = 1
	for range count {
		n := len(g.Slices)
		g.Slices = append(g.Slices, Slice{
			UUID: "MIG-" + MadeUp(fmt.Sprint(g.Address, n)), GI: 7 + n, GPUProfile: profile, ComputeProfile: profile,
			Memory: memory,
		})
	}
}

// BusID is an address as NVML writes it: eight digits of domain, upper case.
func BusID(a topology.Address) string {
	return fmt.Sprintf("%08X:%02X:%02X.%d", a.Domain, a.Bus, a.Device, a.Function)
}

// Text is the machine as the library reads it.
func (m Machine) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "driver %s\n", m.Driver)
	if m.Error != 0 {
		fmt.Fprintf(&b, "error %d\n", m.Error)
	}
	if m.Trace != "" {
		fmt.Fprintf(&b, "trace %s\n", m.Trace)
	}
	for i, g := range m.GPUs {
		fmt.Fprintf(&b, "gpu %d %s %s %d %d %d %d %d %s\n", i, g.UUID, BusID(g.Address), g.Minor, g.Memory, g.MIG,
			g.State, g.Recovery, g.Name)
		if g.Deaf != 0 {
			fmt.Fprintf(&b, "deaf %d %d\n", i, g.Deaf)
		}
		if g.Switch > 0 {
			fmt.Fprintf(&b, "link %d switch %d\n", i, g.Switch)
		}
		for peer, count := range g.Links {
			fmt.Fprintf(&b, "link %d %s %d\n", i, BusID(peer), count)
		}
		for j, s := range g.Slices {
			fmt.Fprintf(&b, "mig %d %d %s %d %d %d %d %d\n", i, j, s.UUID, s.GI, s.CI, s.GPUProfile, s.ComputeProfile,
				s.Memory)
		}
	}
	return b.String()
}

// Minors is the machine's /proc/driver/nvidia-caps/mig-minors.
func (m Machine) Minors() string {
	var b strings.Builder
	b.WriteString("config 1\nmonitor 2\n")
	minor := 3
	for _, g := range m.GPUs {
		for _, s := range g.Slices {
			fmt.Fprintf(&b, "gpu%d/gi%d/access %d\ngpu%d/gi%d/ci%d/access %d\n", g.Minor, s.GI, minor, g.Minor, s.GI,
				s.CI, minor+1)
			minor += 2
		}
	}
	return b.String()
}

// Write replaces the file that the library reads, at once and whole.
func (m Machine) Write(path string) error {
	next, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	if _, err := next.WriteString(m.Text()); err != nil {
		return err
	}
	if err := next.Close(); err != nil {
		return err
	}
	return os.Rename(next.Name(), path)
}
