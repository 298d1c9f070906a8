// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/topology/placement"
)

// BenchmarkVFs asks for pairs on eight GPUs with a PF each, which no other allocator that can be called from
// here chooses.
func BenchmarkVFs(b *testing.B) {
	if *slow {
		b.Skip("-slow measures NVIDIA's policy alone")
	}
	for _, vfs := range []int{8, 127} {
		m := shape{switches: 8, numa: 2, gpus: 1, vfs: vfs}.build(b)
		m.link(allToAll)
		for pairs := 1; pairs <= 8; pairs++ {
			b.Run(fmt.Sprintf("vfs-per-pf=%d/pairs=%d", vfs, pairs), func(b *testing.B) {
				ask(b, m, m.requests(pairs, pairs, 0))
			})
		}
	}
}

// ask measures Choose on questions, one after the other and again. Beside the mean it reports the median, and
// the share that is proven to be the best.
func ask(b *testing.B, m *machine, questions []placement.Request) {
	b.ReportAllocs()
	const most = 1 << 16 // later ones are not kept, so that keeping them allocates nothing
	samples, optimal := make([]time.Duration, 0, most), 0
	for next := 0; b.Loop(); next = (next + 1) % len(questions) {
		start := time.Now()
		c, err := placement.Choose(m.tree, questions[next])
		if took := time.Since(start); len(samples) < cap(samples) {
			samples = append(samples, took)
		}
		if err != nil {
			b.Fatal(err)
		}
		if c.Optimal {
			optimal++
		}
	}
	slices.Sort(samples)
	b.ReportMetric(float64(samples[len(samples)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(optimal)/float64(b.N), "optimal")
}

// request asks for GPUs and VFs of all that the machine has, in random order: the kubelet passes sets.
func (m *machine) request(r *rand.Rand, gpus, vfs int) placement.Request {
	return placement.Request{
		GPUs:  []placement.Half{{Count: gpus, Free: shuffled(r, m.gpus)}},
		VFs:   []placement.Half{{Count: vfs, Free: shuffled(r, m.vfs)}},
		Links: m.links,
	}
}

// requests are a number of such requests, each in another order and, where there are holes, with other
// devices taken by others.
func (m *machine) requests(gpus, vfs int, holes float64) []placement.Request {
	r := rand.New(rand.NewPCG(uint64(gpus), uint64(vfs)))
	questions := make([]placement.Request, 32)
	for i := range questions {
		q := m.request(r, gpus, vfs)
		q.GPUs[0].Free, q.Taken.GPUs = give(r, q.GPUs[0].Free, gpus, holes)
		q.VFs[0].Free, q.Taken.VFs = give(r, q.VFs[0].Free, vfs, holes)
		questions[i] = q
	}
	return questions
}

// give lets other containers have a share of the devices and returns those that stay free, and theirs.
func give(r *rand.Rand, all []placement.Device, wanted int, share float64) (free, taken []placement.Device) {
	kept := max(wanted, len(all)-int(share*float64(len(all))))
	free, taken = all[:kept:kept], all[kept:]
	r.Shuffle(kept, func(i, j int) { free[i], free[j] = free[j], free[i] })
	return free, taken
}

func shuffled(r *rand.Rand, devices []placement.Device) []placement.Device {
	list := slices.Clone(devices)
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}
