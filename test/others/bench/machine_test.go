// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"fmt"
	"math/rand/v2"
	"path"
	"testing"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
	"github.com/tandem-k8s/tandem/topology/recording"
)

// machine is a made-up machine: where everything is, and what can be asked for.
type machine struct {
	tree      *topology.Tree
	gpus, vfs []placement.Device // GPUs, or partitions of them
	links     []topology.Link
}

// shape is a regular machine: switches, each in a root complex of its own, with GPUs and one PF.
type shape struct {
	switches   int
	numa       int // nodes, with equal shares of the switches
	gpus       int // per switch
	partitions int // per GPU, 0 for whole GPUs
	vfs        int // per PF
}

func (s shape) build(tb testing.TB) *machine {
	b := newBuilder(s.numa)
	for i := range s.switches {
		below := b.bridge(b.rootComplex(s.numa * i / s.switches))
		for range s.gpus {
			b.gpu(below, s.partitions)
		}
		b.nic(below, s.vfs)
	}
	return b.machine(tb)
}

// builder writes the sysfs of a machine.
type builder struct {
	made  machine
	files *recording.Builder
	buses int // handed out so far, over all domains
	nodes int
}

// bus is a place where functions can be added.
type bus struct {
	dir     string // in sysfs
	numa    int
	next    topology.Address
	bridges int // above it
}

func newBuilder(nodes int) *builder {
	b := &builder{files: recording.NewBuilder(), nodes: nodes}
	b.files.File("devices/system/node/online", fmt.Sprintf("0-%d\n", nodes-1))
	return b
}

// newBus takes the next bus number; a domain has 256.
func (b *builder) newBus() topology.Address {
	a := topology.Address{Domain: uint32(b.buses / 256), Bus: uint8(b.buses % 256), Device: 1}
	b.buses++
	return a
}

func (b *builder) rootComplex(numa int) *bus {
	a := b.newBus()
	return &bus{dir: fmt.Sprintf("devices/pci%04x:%02x", a.Domain, a.Bus), numa: numa, next: a}
}

// function adds a PCI function and returns its directory.
func (b *builder) function(on *bus, a topology.Address, class string) string {
	dir := path.Join(on.dir, a.String())
	b.files.Link("bus/pci/devices/"+a.String(), "../../../"+dir)
	b.files.File(dir+"/class", class+"\n")
	b.files.File(dir+"/numa_node", fmt.Sprintln(on.numa))
	return dir
}

// bridge adds a bridge and returns the bus below it.
func (b *builder) bridge(on *bus) *bus {
	dir := b.function(on, on.next, "0x060400")
	on.next.Device++
	return &bus{dir: dir, numa: on.numa, next: b.newBus(), bridges: on.bridges + 1}
}

func (b *builder) gpu(on *bus, partitions int) {
	b.function(on, on.next, "0x120000")
	for p := range max(partitions, 1) {
		b.made.gpus = append(b.made.gpus, placement.Device{ID: fmt.Sprintf("%s_%d", on.next, p), Address: on.next})
	}
	on.next.Device++
}

// nic adds a PF, and its VFs in the upper half of the bus.
func (b *builder) nic(on *bus, vfs int) {
	pf := on.next
	b.function(on, pf, "0x020000")
	on.next.Device++
	for v := range vfs {
		a := topology.Address{Domain: pf.Domain, Bus: pf.Bus, Device: uint8(16 + v/8), Function: uint8(v % 8)}
		b.files.Link(b.function(on, a, "0x020000")+"/physfn", "../"+pf.String())
		b.made.vfs = append(b.made.vfs, placement.Device{ID: a.String(), Address: a})
	}
}

func (b *builder) machine(tb testing.TB) *machine {
	tb.Helper()
	recorded, err := b.files.Machine()
	if err != nil {
		tb.Fatal(err)
	}
	if b.made.tree, err = topology.Read(recorded.FS()); err != nil {
		tb.Fatal(err)
	}
	return &b.made
}

// grow makes up a machine with this many GPUs and eight times as many VFs: root complexes with bridges in up
// to four levels, uneven, some switches with GPUs or a NIC alone.
func grow(tb testing.TB, gpus int) *machine {
	r := rand.New(rand.NewPCG(uint64(gpus), 1))
	b := newBuilder(4)
	for len(b.made.gpus) < gpus || len(b.made.vfs) < 8*gpus {
		b.branch(r, b.rootComplex(r.IntN(b.nodes)), gpus)
	}
	return b.machine(tb)
}

// branch fills a bus with bridges, or with devices where it is deep enough.
func (b *builder) branch(r *rand.Rand, on *bus, gpus int) {
	if on.bridges == 4 || on.bridges > 0 && r.IntN(2) == 0 {
		for range min(r.IntN(5), gpus-len(b.made.gpus)) {
			b.gpu(on, 0)
		}
		if left := 8*gpus - len(b.made.vfs); r.IntN(4) > 0 {
			b.nic(on, min(left, 8*(1+r.IntN(4))))
		}
		return
	}
	for range 1 + r.IntN(3) {
		b.branch(r, b.bridge(on), gpus)
	}
}

// The links between GPUs, by the name that benchmarks give them.
const (
	uniform = "uniform" // none; each GPU on a switch of its own, all on one NUMA node
	cube    = "cube"    // hybrid cube mesh: quads from all to all, each GPU with its like in the next quad
	all     = "all"     // from all to all
	two     = "two"     // none; two GPUs on each switch
)

var everyLinks = []string{uniform, cube, all, two}

// linked is a machine with so many GPUs, linked in one of these ways, and eight VFs on each switch.
func linked(tb testing.TB, gpus int, how string) *machine {
	s := shape{switches: gpus, numa: 2, gpus: 1, vfs: 8}
	switch how {
	case uniform:
		s.numa = 1
	case two:
		s.switches, s.gpus = gpus/2, 2
	}
	m := s.build(tb)
	switch how {
	case cube:
		m.link(cubeMesh)
	case all:
		m.link(allToAll)
	}
	return m
}

func cubeMesh(i, j int) int {
	if i/4 == j/4 || i-j == 4 {
		return 1 + (i+j)%2
	}
	return 0
}

func allToAll(int, int) int { return 1 }

// link gives every two GPUs on different cards their number of parallel links.
func (m *machine) link(count func(i, j int) int) {
	for i, a := range m.gpus {
		for j, b := range m.gpus[:i] {
			if n := count(i, j); n > 0 && a.Address != b.Address {
				m.links = append(m.links, topology.Link{
					A: a.Address, B: b.Address, Type: topology.NVLink, Hops: 1, Count: n,
				})
			}
		}
	}
}
