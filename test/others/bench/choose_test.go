// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"
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
				beside(b, fmt.Sprintf("gpus=%d/links=%s/size=%d", gpus, links, size), m, size, 0,
					peerCost(gpus, size, links))
			}
		}
	}
}

// BenchmarkHoles asks the same of nodes with a quarter of the GPUs and VFs taken, each time others.
func BenchmarkHoles(b *testing.B) {
	for _, gpus := range []int{8, 16} {
		for _, links := range []string{cube, two} {
			m := linked(b, gpus, links)
			for _, size := range []int{1, 2, 3, gpus / 2, gpus * 5 / 8} {
				beside(b, fmt.Sprintf("gpus=%d/links=%s/size=%d", gpus, links, size), m, size, 0.25, fast)
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
func beside(b *testing.B, name string, m *machine, size int, holes float64, peer cost) {
	questions := m.requests(size, 0, holes)
	if !*slow {
		b.Run(name+"/by=tandem", func(b *testing.B) { ask(b, m, questions) })
		b.Run(name+"/by=tandem-pairs", func(b *testing.B) { ask(b, m, m.requests(size, size, holes)) })
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
