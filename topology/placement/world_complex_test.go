// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/topology"
)

// ids are the vendor and the device of a function.
type ids struct{ vendor, device uint16 }

var (
	gracePort   = ids{0x10de, 0x22b1}
	otherPort   = ids{0x8086, 0x352a}
	nicPort     = ids{0x15b3, 0x197c} // of a ConnectX switch
	nvidiaGPU   = ids{0x10de, 0x2941}
	connectX    = ids{0x15b3, 0x1023}
	otherNIC    = ids{0x14e4, 0x1760}
	dmaFunction = ids{0x15b3, 0x2100}
)

// controls are values of ACS control registers: off, for a DMA function, for its GPU, as the kernel sets it,
// for the NIC of an inline complex with ATS.
var controls = []uint16{0, 0x19, 0x15, 0x1d, 0x5d}

// addComplexes makes up complexes beside the rest of the machine, whole ones and ones with a fault.
func (b *builder) addComplexes() {
	switch b.r.IntN(8) {
	case 0:
		b.addC2C()
	case 1:
		for i := range 1 + b.r.IntN(2) {
			b.addDMA(fmt.Sprint("v", i))
		}
	case 2:
		b.addInline()
	}
}

// root begins a root complex of its own with a port.
func (b *builder) root(numa int, port ids) function {
	const first = 0x20 // no domain of the rest
	b.domains++
	c := topology.Address{Domain: first + b.domains, Bus: b.bus(first + b.domains)}
	return b.below(function{complex: c, address: c, numa: numa}, port, 1)
}

// below adds a port on the bus of a function, the given device of the bus, and returns a function below the
// port. What the caller makes of it is not added.
func (b *builder) below(f function, port ids, device uint8) function {
	f.address.Device, f.class, f.id = device, "0x060400", port
	f.config = fmt.Sprintf("ACS=%#04x\n", controls[b.r.IntN(len(controls))])
	b.functions = append(b.functions, f)
	at := f.address
	f.bridges = append(slices.Clone(f.bridges), at)
	f.address = topology.Address{Domain: at.Domain, Bus: b.bus(at.Domain), Device: 1}
	f.class, f.id, f.config = "", ids{}, ""
	return f
}

// addGPU and addNIC make a GPU or NIC of a function.
func (b *builder) addGPU(f function) {
	f.class, f.id = "0x030200", nvidiaGPU
	b.gpu(f)
}

func (b *builder) addNIC(f function, id ids) {
	f.class, f.id, f.config = "0x020000", id, []string{"none\n", "ATS\n"}[b.r.IntN(2)]
	b.nic(f)
}

// addC2C adds GPUs and NICs on root ports of Grace, sometimes a GPU elsewhere, so that there is no C2C.
func (b *builder) addC2C() {
	for node := range b.nodes {
		for range 1 + b.r.IntN(2) {
			b.addGPU(b.root(node, gracePort))
		}
		for range b.r.IntN(3) {
			f := b.root(node, gracePort)
			if b.r.IntN(2) == 0 {
				f = b.below(b.below(f, nicPort, 1), nicPort, 1)
			}
			b.addNIC(f, []ids{connectX, connectX, otherNIC}[b.r.IntN(3)])
		}
	}
	if b.r.IntN(6) == 0 {
		b.addGPU(b.root(0, otherPort))
	}
}

// addDMA adds a DMA function with a GPU, and a NIC on another root complex, sometimes of another NUMA node,
// that is sometimes another function's.
func (b *builder) addDMA(v3 string) {
	numa := b.r.IntN(b.nodes)
	upstream := b.below(b.root(numa, gracePort), nicPort, 1)
	f := b.below(upstream, nicPort, 1)
	f.class, f.id, f.v3 = "0x020700", dmaFunction, v3
	b.functions = append(b.functions, f)
	b.addGPU(b.below(b.below(b.below(upstream, nicPort, 2), nicPort, 1), nicPort, 1))
	if numa++; b.r.IntN(3) > 0 {
		numa--
	}
	nic := b.root(numa%b.nodes, gracePort)
	if nic.v3 = v3; b.r.IntN(5) == 0 {
		nic.v3 = "x"
	}
	b.addNIC(nic, connectX)
}

// addInline adds a switch with a NIC and GPUs.
func (b *builder) addInline() {
	upstream := b.below(b.root(b.r.IntN(b.nodes), otherPort), nicPort, 1)
	b.addNIC(b.below(upstream, nicPort, 1), connectX)
	for i := range 1 + b.r.IntN(2) {
		f := b.below(upstream, nicPort, uint8(2+i))
		if b.r.IntN(2) == 0 {
			f = b.below(b.below(f, nicPort, 1), nicPort, 1)
		}
		b.addGPU(f)
	}
}

// TestWorldsHaveComplexes: the made-up machines have each kind of complex, with and without a fault where a
// kind can have one, and redirects in complexes.
func TestWorldsHaveComplexes(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for seed := range uint64(400) {
		tree := randomWorld(rand.New(rand.NewPCG(seed, 0)), 7, 10).tree(t, same)
		for _, c := range tree.Complexes() {
			key := string(c.Kind)
			if c.Fault != "" {
				key += " with a fault"
			} else if c.Kind != topology.KindC2C && tree.Redirected(c.GPUs[0]) > 0 {
				key += " redirected"
			}
			seen[key]++
		}
	}
	for _, key := range []string{
		"dma", "dma redirected", "dma with a fault", "c2c", "c2c with a fault", "inline", "inline redirected",
	} {
		if seen[key] < 3 {
			t.Errorf("%s: %d times", key, seen[key])
		}
	}
	t.Log(seen)
}
