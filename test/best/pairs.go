// SPDX-License-Identifier: Apache-2.0

// Package best computes the nearest possible pairs of a container's GPUs and VFs. It uses only the order of
// distances, independently of Tandem's choice, which it judges.
package best

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// Pairs counts the pairs of a container by distance, the nearest first: #PIX, #PXB, #C2C, #PHB, #NODE, #SYS,
// #UNK.
type Pairs [topology.Levels]int

// Level returns the distance of a GPU and a VF.
type Level func(gpu, vf topology.Address) topology.Level

// Count counts the pairs by distance.
func Count(levels []topology.Level) Pairs {
	var pairs Pairs
	for _, level := range levels {
		pairs[level]++
	}
	return pairs
}

// Compare returns a negative number if p is better: more of the nearest pairs, or as many and more of the
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

// String formats the counts, "3 PIX + 1 SYS", or "none".
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
