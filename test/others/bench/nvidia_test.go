// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"

	"github.com/NVIDIA/go-gpuallocator/gpuallocator"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

var slow = flag.Bool("slow", false,
	"measure what NVIDIA's policy takes seconds for, and nothing else; -benchtime 1x is meant")

// BenchmarkChoose asks Tandem and NVIDIA's best-effort policy for GPUs of a free node, and Tandem for as many
// VFs with them as well (by=tandem-pairs), which NVIDIA's has no notion of.
func BenchmarkChoose(b *testing.B) {
	for _, gpus := range []int{8, 16, 32} {
		for _, links := range everyLinks {
			m := linked(b, gpus, links)
			for _, size := range sizes(gpus) {
				beside(b, fmt.Sprintf("gpus=%d/links=%s/size=%d", gpus, links, size), m, size,
					peerCost(gpus, size, links))
			}
		}
	}
}

func sizes(gpus int) []int {
	list := []int{1, 2, 3, 4, 7, 8, 15, 16, 31}
	return list[:slices.IndexFunc(append(list, gpus+1), func(size int) bool { return size > gpus })]
}

// cost is whether NVIDIA's policy can be measured.
type cost int

const (
	fast    cost = iota
	seconds      // with the flag -slow
	endless
)

// peerCost is known from earlier measurements and does not depend on the links. The policy goes through all
// ways to divide all free GPUs into sets of the size: 2 million for 2 of 16, 22 million for 3 of 16, 190
// thousand billion for 2 of 32. It also goes through 78 million sets to divide 16 GPUs into sets of 15, for
// it fills up the last set with nothing.
func peerCost(gpus, size int, links string) cost {
	switch {
	case gpus == 16 && (size == 3 || size == 15) && links != uniform && links != cube:
		return endless // 16 s and 5 s, as with these two
	case gpus <= 8 || size == 1 || size == gpus || gpus == 16 && size == 8:
		return fast
	case gpus == 16:
		return seconds
	default:
		return endless
	}
}

// beside asks all of them the same questions.
func beside(b *testing.B, name string, m *machine, size int, peer cost) {
	questions := m.requests(size, 0, 0)
	if !*slow {
		b.Run(name+"/by=tandem", func(b *testing.B) { ask(b, m, questions) })
		b.Run(name+"/by=tandem-pairs", func(b *testing.B) { ask(b, m, m.requests(size, size, 0)) })
	}
	b.Run(name+"/by=nvidia", func(b *testing.B) {
		switch {
		case peer == endless:
			b.Skip("NVIDIA's policy takes longer than can be waited for (see peerCost); Tandem alone is measured")
		case (peer == seconds) != *slow:
			b.Skip("NVIDIA's policy takes seconds: measured once, with -slow")
		}
		asNVIDIA(m).ask(b, questions)
	})
}

// nvidia is a machine as NVIDIA's device plugin hands it to its allocator. The plugin reads the links anew
// for every question; here that is not measured.
type nvidia map[string]*gpuallocator.Device

func asNVIDIA(m *machine) nvidia {
	devices := nvidia{}
	at := map[topology.Address]*gpuallocator.Device{}
	for i, d := range m.gpus {
		device := &gpuallocator.Device{Index: i, Links: map[int][]gpuallocator.P2PLink{}}
		device.UUID = d.ID
		devices[d.ID], at[d.Address] = device, device
	}
	for _, a := range m.gpus {
		for _, b := range m.gpus {
			if a != b {
				connect(at[a.Address], at[b.Address], overPCIe[m.tree.Distance(a.Address, b.Address).Level])
			}
		}
	}
	for _, l := range m.links {
		connect(at[l.A], at[l.B], oneNVLink+uint(l.Count)-1)
		connect(at[l.B], at[l.A], oneNVLink+uint(l.Count)-1)
	}
	return devices
}

// The allocator's P2PLinkType, which its API does not name.
const oneNVLink = 7

var overPCIe = map[topology.Level]uint{
	topology.SYS: 1, topology.NODE: 2, topology.PHB: 3, topology.PXB: 4, topology.PIX: 5,
	topology.C2C: 2, // NODE for NVML
}

func connect(from, to *gpuallocator.Device, linkType uint) {
	link := gpuallocator.P2PLink{GPU: to}
	link.Type = convert(link.Type, linkType)
	from.Links[to.Index] = append(from.Links[to.Index], link)
}

// convert gives a number the type of another, which need not have a name that can be written here.
func convert[T ~uint](_ T, n uint) T { return T(n) }

// list are GPUs in the same order.
func (n nvidia) list(gpus []placement.Device) []*gpuallocator.Device {
	list := make([]*gpuallocator.Device, len(gpus))
	for i, d := range gpus {
		list[i] = n[d.ID]
	}
	return list
}

// ask measures the allocator's policy as ask measures Choose, on the GPUs of the same questions.
func (n nvidia) ask(b *testing.B, questions []placement.Request) {
	b.ReportAllocs()
	policy := gpuallocator.NewBestEffortPolicy()
	lists := make([][]*gpuallocator.Device, len(questions))
	for i, q := range questions {
		lists[i] = n.list(q.GPUs[0].Free)
	}
	next, size := 0, questions[0].GPUs[0].Count
	for b.Loop() {
		if got := policy.Allocate(lists[next], nil, size); len(got) != size {
			b.Fatalf("%d GPUs, want %d", len(got), size)
		}
		next = (next + 1) % len(lists)
	}
}

// score is how well GPUs are connected, as the allocator counts it: by direct links and by PCI Express.
func score(gpus []*gpuallocator.Device) int {
	sum := 0
	for i, a := range gpus {
		for _, b := range gpus[:i] {
			for _, l := range a.Links[b.Index] {
				if n := int(l.Type); n >= oneNVLink {
					sum += 100 * (n - oneNVLink + 1)
				} else {
					sum += 10 * n
				}
			}
		}
	}
	return sum
}

// Both are asked the same: by NVIDIA's own count Tandem's GPUs are connected as well as NVIDIA's, or better.
func TestNVIDIAAndTandemSeeTheSame(t *testing.T) {
	for _, links := range everyLinks {
		m := linked(t, 8, links)
		n := asNVIDIA(m)
		for size := 1; size <= len(m.gpus); size++ {
			for _, q := range m.requests(size, 0, 0.25) {
				theirs := gpuallocator.NewBestEffortPolicy().Allocate(n.list(q.GPUs[0].Free), nil, size)
				ours, err := placement.Choose(m.tree, q)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := score(n.list(ours.GPUs)), score(theirs); len(theirs) != size || got < want {
					t.Errorf("%s, %d of %d GPUs: %d points, NVIDIA's %d have %d",
						links, size, len(q.GPUs[0].Free), got, len(theirs), want)
				}
			}
		}
	}
}
