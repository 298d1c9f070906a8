// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// These are Tandem's alone: no other allocator that can be called from here chooses pairs, or partitions in
// such numbers in bounded time.

// BenchmarkVFs asks for pairs on eight GPUs with a PF each.
func BenchmarkVFs(b *testing.B) {
	skipIfSlow(b)
	for _, vfs := range []int{1, 8, 16, 127} {
		m := shape{switches: 8, numa: 2, gpus: 1, vfs: vfs}.build(b)
		m.link(allToAll)
		for pairs := 1; pairs <= 8; pairs++ {
			b.Run(fmt.Sprintf("vfs-per-pf=%d/pairs=%d", vfs, pairs), func(b *testing.B) {
				ask(b, m, m.requests(pairs, pairs, 0))
			})
		}
	}
}

// BenchmarkPartitions asks for pairs on eight GPUs with eight partitions each, all of them free or some
// taken.
func BenchmarkPartitions(b *testing.B) {
	skipIfSlow(b)
	m := shape{switches: 8, numa: 2, gpus: 1, partitions: 8, vfs: 8}.build(b)
	m.link(allToAll)
	for _, taken := range []float64{0, 0.25} {
		for _, pairs := range []int{1, 2, 4, 8, 9, 16, 24, 32, 40, 48, 56, 63} {
			if free := len(m.gpus) - int(taken*float64(len(m.gpus))); pairs <= free {
				b.Run(fmt.Sprintf("free=%d/pairs=%d", free, pairs), func(b *testing.B) {
					ask(b, m, m.requests(pairs, pairs, taken))
				})
			}
		}
	}
}

// BenchmarkInfeasible asks for eight pairs where one switch has no VF left: seven are possible, and one GPU
// has to go further.
func BenchmarkInfeasible(b *testing.B) {
	skipIfSlow(b)
	for _, vfs := range []int{8, 16, 127} {
		m := shape{switches: 8, numa: 2, gpus: 1, vfs: vfs}.build(b)
		m.vfs = m.vfs[vfs:]
		b.Run(fmt.Sprintf("vfs-per-pf=%d/pairs=8", vfs), func(b *testing.B) { ask(b, m, m.requests(8, 8, 0)) })
	}
}

// BenchmarkAny asks for anything: numbers of GPUs and VFs that need not be equal, any part of the node free,
// one NUMA node or all.
func BenchmarkAny(b *testing.B) {
	skipIfSlow(b)
	for _, c := range []struct {
		name  string
		shape shape
		links func(i, j int) int
	}{
		{"gpus=8/vfs=64", shape{switches: 8, numa: 2, gpus: 1, vfs: 8}, allToAll},
		{"gpus=8/vfs=64/links=cube", shape{switches: 8, numa: 2, gpus: 1, vfs: 8}, cubeMesh},
		{"gpus=8/vfs=1016", shape{switches: 8, numa: 2, gpus: 1, vfs: 127}, allToAll},
		{"gpus=8/vfs=1016/links=cube", shape{switches: 8, numa: 2, gpus: 1, vfs: 127}, cubeMesh},
		{"gpus=16/vfs=128", shape{switches: 16, numa: 2, gpus: 1, vfs: 8}, allToAll},
		{"gpus=16/vfs=128/links=cube", shape{switches: 16, numa: 2, gpus: 1, vfs: 8}, cubeMesh},
		{"gpus=16/vfs=64", shape{switches: 8, numa: 4, gpus: 2, vfs: 8}, func(int, int) int { return 0 }},
		{"partitions=64/vfs=64", shape{switches: 8, numa: 2, gpus: 1, partitions: 8, vfs: 8}, allToAll},
	} {
		m := c.shape.build(b)
		m.link(c.links)
		r := rand.New(rand.NewPCG(1, 1))
		b.Run(c.name, func(b *testing.B) {
			questions := make([]placement.Request, 128) // others each time
			for i := range questions {
				questions[i] = m.anyRequest(r)
			}
			ask(b, m, questions)
		})
	}
}

// BenchmarkRails asks for GPUs and a VF of every rail, each rail a resource of its own: the VFs of one PF.
func BenchmarkRails(b *testing.B) {
	skipIfSlow(b)
	for _, vfs := range []int{1, 8, 127} {
		m := shape{switches: 8, numa: 2, gpus: 1, vfs: vfs}.build(b)
		m.link(allToAll)
		for _, gpus := range []int{1, 4, 8} {
			questions := m.requests(gpus, 0, 0)
			for i := range questions {
				questions[i].VFs = m.rails()
			}
			b.Run(fmt.Sprintf("vfs-per-pf=%d/gpus=%d", vfs, gpus), func(b *testing.B) { ask(b, m, questions) })
		}
	}
}

// rails is a half for every PF, of which one VF is wanted.
func (m *machine) rails() []placement.Half {
	var halves []placement.Half
	at := map[topology.Address]int{}
	for _, d := range m.vfs {
		f, _ := m.tree.Device(d.Address)
		i, known := at[f.Function()]
		if !known {
			i = len(halves)
			at[f.Function()] = i
			halves = append(halves, placement.Half{Count: 1})
		}
		halves[i].Free = append(halves[i].Free, d)
	}
	return halves
}

// BenchmarkGrowth asks for pairs on larger and larger nodes: regular ones with eight linked GPUs and one PF
// on a switch, and uneven ones made up at random. A node has eight times as many VFs as GPUs.
func BenchmarkGrowth(b *testing.B) {
	skipIfSlow(b)
	for gpus := 16; gpus <= 1024; gpus *= 2 {
		regular := shape{switches: gpus / 8, numa: 2, gpus: 8, vfs: 64}.build(b)
		regular.link(func(i, j int) int { return max(0, 1-(i/8-j/8)) })
		uneven := grow(b, gpus)
		for _, request := range []struct {
			name      string
			gpus, vfs int
		}{
			{"8+8", 8, 8}, {"8+5", 8, 5}, {"half", gpus / 2, gpus / 2}, {"any", gpus / 3, gpus},
		} {
			b.Run(fmt.Sprintf("tree=regular/ask=%s/gpus=%d", request.name, gpus), func(b *testing.B) {
				ask(b, regular, regular.requests(request.gpus, request.vfs, 0.25))
			})
			b.Run(fmt.Sprintf("tree=uneven/ask=%s/gpus=%d", request.name, gpus), func(b *testing.B) {
				ask(b, uneven, uneven.requests(request.gpus, request.vfs, 0.25))
			})
		}
	}
}

func skipIfSlow(b *testing.B) {
	if *slow {
		b.Skip("-slow measures NVIDIA's policy alone")
	}
}
