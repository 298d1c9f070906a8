// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/topology/placement"
)

// ask measures Choose on questions, one after the other and again. Beside the mean it reports the median, the
// 99th percentile and the longest of all single decisions, the slowest question when it goes fastest (without
// what else the computer did), and the share that is proven to be the best.
func ask(b *testing.B, m *machine, questions []placement.Request) {
	b.ReportAllocs()
	watch := newStopwatch(len(questions))
	optimal := 0
	for b.Loop() {
		start := time.Now()
		c, err := placement.Choose(m.tree, questions[watch.next])
		watch.lap(time.Since(start))
		if err != nil {
			b.Fatal(err)
		}
		if c.Optimal {
			optimal++
		}
	}
	watch.report(b)
	b.ReportMetric(float64(optimal)/float64(b.N), "optimal")
}

// stopwatch keeps how long each decision takes.
type stopwatch struct {
	next    int // the question to ask
	samples []time.Duration
	best    []time.Duration // by question
}

func newStopwatch(questions int) *stopwatch {
	const most = 1 << 16 // later ones are not kept, so that keeping them allocates nothing
	w := &stopwatch{samples: make([]time.Duration, 0, most), best: make([]time.Duration, questions)}
	for i := range w.best {
		w.best[i] = math.MaxInt64
	}
	return w
}

func (w *stopwatch) lap(d time.Duration) {
	if len(w.samples) < cap(w.samples) {
		w.samples = append(w.samples, d)
	}
	w.best[w.next] = min(w.best[w.next], d)
	w.next = (w.next + 1) % len(w.best)
}

func (w *stopwatch) report(b *testing.B) {
	slices.Sort(w.samples)
	at := func(share float64) float64 {
		return float64(w.samples[int(share*float64(len(w.samples)-1))].Nanoseconds())
	}
	b.ReportMetric(at(0.5), "p50-ns")
	b.ReportMetric(at(0.99), "p99-ns")
	b.ReportMetric(at(1), "max-ns")
	asked := slices.DeleteFunc(w.best, func(d time.Duration) bool { return d == math.MaxInt64 })
	b.ReportMetric(float64(slices.Max(asked).Nanoseconds()), "worst-ns")
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

// anyRequest asks for any numbers, with any share of the machine taken, and as often as not on one NUMA node
// alone.
func (m *machine) anyRequest(r *rand.Rand) placement.Request {
	q := m.request(r, 0, 0)
	q.GPUs[0].Free, q.Taken.GPUs = give(r, q.GPUs[0].Free, 1, r.Float64())
	q.VFs[0].Free, q.Taken.VFs = give(r, q.VFs[0].Free, 1, r.Float64())
	if r.IntN(2) == 0 {
		q.GPUs[0].Free, q.Spare.GPUs = m.split(q.GPUs[0].Free)
		q.VFs[0].Free, q.Spare.VFs = m.split(q.VFs[0].Free)
	}
	q.GPUs[0].Count, q.VFs[0].Count = r.IntN(len(q.GPUs[0].Free)+1), r.IntN(len(q.VFs[0].Free)+1)
	return q
}

// split separates the devices on NUMA node 0 from the others.
func (m *machine) split(devices []placement.Device) (here, elsewhere []placement.Device) {
	for _, d := range devices {
		f, _ := m.tree.Device(d.Address)
		if n, known := f.NUMA.Number(); known && n == 0 {
			here = append(here, d)
		} else {
			elsewhere = append(elsewhere, d)
		}
	}
	return here, elsewhere
}

func shuffled(r *rand.Rand, devices []placement.Device) []placement.Device {
	list := slices.Clone(devices)
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}
