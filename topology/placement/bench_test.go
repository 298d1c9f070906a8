// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tandem-k8s/tandem/topology"
)

// shape is a regular machine: NUMA nodes with switches, each in a root complex of its own with GPUs and one
// PF.
type shape struct {
	switches   int // half of them on each of two NUMA nodes
	gpus       int // per switch
	partitions int // per GPU
	vfs        int // per PF
}

// world builds a machine of the shape.
func (s shape) world() *world {
	w := &world{nodes: 2}
	for i := range s.switches {
		numa := 2 * i / s.switches
		domain, bus := uint32(i/100), uint8(2*(i%100))
		c := topology.Address{Domain: domain, Bus: bus}
		port := topology.Address{Domain: domain, Bus: bus, Device: 1}
		add := func(f function) {
			f.complex, f.numa = c, numa
			w.functions = append(w.functions, f)
		}
		add(function{address: port, class: "0x060400"})
		below := []topology.Address{port}
		for g := range s.gpus {
			a := topology.Address{Domain: domain, Bus: bus + 1, Device: uint8(g + 1)}
			add(function{address: a, bridges: below, class: "0x120000"})
			for p := range s.partitions {
				w.gpus = append(w.gpus, Device{ID: fmt.Sprintf("%s_%d", a, p), Address: a})
			}
		}
		pf := topology.Address{Domain: domain, Bus: bus + 1}
		add(function{address: pf, bridges: below, class: "0x020000"})
		for v := range s.vfs {
			a := topology.Address{Domain: domain, Bus: bus + 1, Device: uint8(16 + v/8), Function: uint8(v % 8)}
			add(function{address: a, bridges: below, class: "0x020000", pf: pf})
			w.vfs = append(w.vfs, Device{ID: a.String(), Address: a})
		}
	}
	return w
}

// allToAll links every two cards.
func (w *world) allToAll() {
	for i, a := range w.gpus {
		for _, b := range w.gpus[:i] {
			if a.Address != b.Address {
				w.links = append(w.links, topology.Link{
					A: a.Address, B: b.Address, Type: topology.XGMI, Hops: 1, Count: 1,
				})
			}
		}
	}
}

// cubeMesh links GPUs as a hybrid cube mesh does: quads from all to all, each GPU with its like in the next
// quad.
func (w *world) cubeMesh() {
	for i, a := range w.gpus {
		for j, b := range w.gpus[:i] {
			if i/4 == j/4 || i-j == 4 {
				w.links = append(w.links, topology.Link{
					A: a.Address, B: b.Address, Type: topology.NVLink, Hops: 1, Count: 1 + (i+j)%2,
				})
			}
		}
	}
}

// fragment takes devices away as other containers would, one in so many of each kind.
func (w *world) fragment(r *rand.Rand, oneIn int) {
	part := func(all []Device) (kept, taken []Device) {
		for _, d := range all {
			if r.IntN(oneIn) > 0 {
				kept = append(kept, d)
			} else {
				taken = append(taken, d)
			}
		}
		return kept, taken
	}
	w.gpus, w.taken.GPUs = part(w.gpus)
	w.vfs, w.taken.VFs = part(w.vfs)
}

func BenchmarkChoose(b *testing.B) {
	for _, machine := range []struct {
		name     string
		shape    shape
		change   func(w *world)
		requests [][2]int
	}{
		{"8+64", shape{8, 1, 1, 8}, (*world).allToAll,
			[][2]int{{1, 1}, {2, 2}, {4, 4}, {8, 8}, {4, 1}, {2, 3}, {3, 5}, {4, 0}, {0, 4}}},
		{"8+8", shape{8, 1, 1, 1}, (*world).allToAll, [][2]int{{1, 1}, {4, 4}, {8, 8}}},
		{"8+1016", shape{8, 1, 1, 127}, (*world).allToAll, [][2]int{{1, 1}, {4, 4}, {8, 8}}},
		{"8+32 cube mesh", shape{4, 2, 1, 8}, (*world).cubeMesh,
			[][2]int{{1, 1}, {2, 2}, {3, 3}, {4, 4}, {4, 0}, {8, 8}}},
		{"16+128", shape{16, 1, 1, 8}, (*world).allToAll,
			[][2]int{{3, 3}, {8, 8}, {15, 15}, {5, 12}, {12, 5}, {8, 0}}},
		{"16+64 cube mesh", shape{8, 2, 1, 8}, (*world).cubeMesh, [][2]int{{2, 2}, {4, 4}, {8, 8}, {8, 0}}},
		{"16+128 cube mesh", shape{16, 1, 1, 8}, (*world).cubeMesh, [][2]int{{2, 2}, {4, 4}, {8, 8}, {8, 0}}},
		{"64 partitions+64", shape{8, 1, 8, 8}, (*world).allToAll,
			[][2]int{{1, 1}, {8, 8}, {32, 32}, {63, 63}, {40, 60}, {60, 40}, {63, 8}, {9, 0}}},
		{"half of 64 partitions+64",
			shape{8, 1, 8, 8}, func(w *world) { w.allToAll(); w.fragment(rand.New(rand.NewPCG(1, 1)), 2) },
			[][2]int{{1, 1}, {8, 8}, {16, 16}, {20, 13}, {13, 20}, {30, 30}}},
		{"8+8 without VFs on half", shape{8, 1, 1, 2}, func(w *world) { w.vfs = w.vfs[:8] },
			[][2]int{{4, 4}, {8, 8}, {5, 8}, {8, 5}}},
		{"64 partitions+64 on half", shape{8, 1, 8, 16}, func(w *world) { w.allToAll(); w.vfs = w.vfs[:64] },
			[][2]int{{32, 32}, {40, 60}, {60, 40}, {50, 50}}},
		{"1024+8192", shape{128, 8, 1, 64}, func(*world) {}, [][2]int{{8, 8}, {512, 512}}},
	} {
		w := machine.shape.world()
		machine.change(w)
		tree := w.tree(b, same)
		for _, n := range machine.requests {
			r := Request{
				GPUs:  []Half{{Count: n[0], Free: w.gpus}},
				VFs:   []Half{{Count: n[1], Free: w.vfs}},
				Links: w.links,
				Taken: w.taken,
			}
			if len(w.gpus) < n[0] || len(w.vfs) < n[1] {
				continue
			}
			b.Run(fmt.Sprintf("%s/%d+%d", machine.name, n[0], n[1]), func(b *testing.B) {
				b.ReportAllocs()
				optimal := 0.0
				for b.Loop() {
					c, err := Choose(tree, r)
					if err != nil {
						b.Fatal(err)
					}
					if c.Optimal {
						optimal = 1
					}
				}
				b.ReportMetric(optimal, "optimal")
			})
		}
	}
}
