// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"testing"

	"github.com/NVIDIA/go-gpuallocator/gpuallocator"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

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
