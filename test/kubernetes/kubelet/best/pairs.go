// SPDX-License-Identifier: Apache-2.0

// Package best tells how near to each other the GPUs and VFs of a container could have been at best. It knows
// the order of distances and nothing of how Tandem chooses, so that it can judge it.
package best

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// Pairs counts the pairs of a container by distance, the nearest first: #PIX, #PXB, #PHB, #NODE, #SYS, #UNK.
type Pairs [topology.Levels]int

// Level tells how far apart a GPU and a VF are.
type Level func(gpu, vf topology.Address) topology.Level

// Count counts pairs that are this far apart.
func Count(levels []topology.Level) Pairs {
	var pairs Pairs
	for _, level := range levels {
		pairs[level]++
	}
	return pairs
}

// Compare is negative where p is better: where it has more of the nearest pairs, or as many and more of the
// next nearest.
func (p Pairs) Compare(q Pairs) int {
	for level := range p {
		if c := cmp.Compare(q[level], p[level]); c != 0 {
			return c
		}
	}
	return 0
}

// Add counts the pairs of both.
func (p Pairs) Add(q Pairs) Pairs {
	for level := range p {
		p[level] += q[level]
	}
	return p
}

// String prints what there is, "3 PIX + 1 SYS", or "none".
func (p Pairs) String() string {
	var parts []string
	for level, count := range p {
		if count > 0 {
			parts = append(parts, fmt.Sprint(count, " ", topology.Level(level)))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, " + ")
}
