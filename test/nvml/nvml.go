// SPDX-License-Identifier: Apache-2.0

// Package nvml is a stand-in for NVIDIA's management library, for tests on machines without a GPU. The
// library itself is C (library/nvml.c), built with cc and opened with dlopen like the real one. It reports a
// [Machine], which this package derives from a recorded machine and writes to a text file for the library:
//
//	driver VERSION
//	error CODE                  every call fails with it, as NVML's return codes are numbered
//	uncounted N                 counting the GPUs fails N times
//	trace FILE                  the names of the calls are appended there
//	gpu INDEX UUID BUS MINOR MEMORY MIG STATE RECOVERY NAME
//	deaf INDEX CODE             registering for its events fails with it
//	link INDEX BUS|switch COUNT
//	near INDEX INDEX LEVEL      the common ancestor of two GPUs, as in nvmlGpuTopologyLevel_t
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

// Machine is the machine that the library reports.
type Machine struct {
	Driver string
	Error  int    // return code of every call, 0 for none
	Trace  string // a file for the names of all calls, "" for none
	// Uncounted is how many of the next counts of the GPUs fail, while all other calls succeed.
	Uncounted int
	GPUs      []GPU
}

// GPU is a GPU, numbered by its index in the list.
type GPU struct {
	UUID     string
	Address  topology.Address
	Minor    int
	Memory   uint64 // MiB
	MIG      int    // -1 unsupported, 0 off, 1 on
	State    int    // return code of calls about the GPU
	Deaf     int    // return code of registering for its events
	Recovery int    // -1 unknown, 0 none, 1 reset
	Name     string
	Switch   int                      // links to NVSwitches
	Links    map[topology.Address]int // to other GPUs
	Slices   []Slice                  // its MIG devices
	Near     []int                    // common ancestors with the GPUs before it in the list
}

// Slice is a MIG device. The profiles are the numbers of nvml.h: 0 to 4 have 1, 2, 3, 4 and 7 slices.
type Slice struct {
	UUID                       string
	GI, CI                     int
	GPUProfile, ComputeProfile int
	Memory                     uint64 // MiB
}

// ancestors are the levels of NVML (nvmlGpuTopologyLevel_t) by those of package topology.
var ancestors = map[topology.Level]int{
	topology.PIX: 10, topology.PXB: 20, topology.PHB: 30, topology.NODE: 40, topology.SYS: 50,
}

// product has the properties of a GPU by PCI device number.
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
	0x2941: {"NVIDIA GB200", 189471, 0, 18},
	0x2bb5: {"NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, 0, 0},
	0x31c2: {"NVIDIA GB300", 284208, 0, 18},
	0:      {"NVIDIA Graphics Device", 294912, 0, 18}, // of a machine without device IDs; made up
}

// Record returns the machine of a sysfs: the GPUs bound to the nvidia driver, in order of address, with UUIDs
// derived from the addresses.
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
		var near []int
		for _, g := range m.GPUs {
			near = append(near, ancestors[tree.Distance(d.Address, g.Address).Level])
		}
		m.GPUs = append(m.GPUs, GPU{
			UUID: "GPU-" + MadeUp(d.Address.String()), Address: d.Address, Minor: len(m.GPUs),
			Memory: p.memory, MIG: p.mig, Name: p.name, Switch: p.links, Near: near,
		})
	}
	return m, nil
}

// MadeUp returns a UUID derived from a text.
func MadeUp(text string) string {
	sum := sha1.Sum([]byte(text))
	id, _ := uuid.FromBytes(sum[:16])
	return id.String()
}

// Split enables MIG and divides a GPU into slices of one profile, "1g.10gb" for profile 0 on 80 GB.
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

// BusID returns an address in NVML's format: eight digits of domain, upper case.
func BusID(a topology.Address) string {
	return fmt.Sprintf("%08X:%02X:%02X.%d", a.Domain, a.Bus, a.Device, a.Function)
}

// Text returns the machine in the library's format.
func (m Machine) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "driver %s\n", m.Driver)
	if m.Error != 0 {
		fmt.Fprintf(&b, "error %d\n", m.Error)
	}
	if m.Uncounted > 0 {
		fmt.Fprintf(&b, "uncounted %d\n", m.Uncounted)
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
		for j, level := range g.Near {
			fmt.Fprintf(&b, "near %d %d %d\n", i, j, level)
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

// Minors returns the machine's /proc/driver/nvidia-caps/mig-minors.
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

// Nodes returns the machine's device nodes of GPUs and MIG devices, below /dev.
func (m Machine) Nodes() (nodes []string) {
	minor := 3
	for _, g := range m.GPUs {
		nodes = append(nodes, fmt.Sprint("nvidia", g.Minor))
		for range 2 * len(g.Slices) {
			nodes = append(nodes, fmt.Sprint("nvidia-caps/nvidia-cap", minor))
			minor++
		}
	}
	return nodes
}

// Write replaces the library's file atomically.
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
