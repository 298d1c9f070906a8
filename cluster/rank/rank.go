// SPDX-License-Identifier: Apache-2.0

// Package rank says which of several nodes is the best one for a pod: the rule of the scheduler plugin, and
// of the simulation of a cluster.
package rank

import (
	"cmp"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// Sizes are the numbers of same-switch pairs that room is kept for, the largest first.
var Sizes = [...]int{8, 4, 2, 1}

// Room is, for each of [Sizes], how many containers with so many pairs the kubelet would still admit one
// after the other, if nothing else came, so that all their pairs are on one switch each; mostRoom at the
// most.
type Room [len(Sizes)]int

// mostRoom is how many containers of a size are looked at. A machine has fewer pairs, unless its GPUs and
// NICs are shared out many times.
const mostRoom = 128

// Fit counts the room that free pairs make, by NUMA node, on the switches there. Admit is what the kubelet
// says to a container of a size when these are free: on which NUMA nodes it is, or false where it is refused.
func Fit(pairs hints.PerNode, admit func(size int, pairs hints.PerNode) (hints.Mask, bool)) Room {
	var room Room
	for i, size := range Sizes {
		left, free := pairs.On(^hints.Mask(0)), slices.Clone(pairs)
		for ; left >= size && room[i] < mostRoom; left -= size {
			nodes, admitted := admit(size, free)
			if !admitted {
				break
			}
			take(free, nodes, size)
			room[i]++
		}
	}
	return room
}

// take takes pairs from NUMA nodes, and from the others what these have too few.
func take(pairs hints.PerNode, from hints.Mask, size int) {
	for _, m := range [...]hints.Mask{from, ^from} {
		for node := range pairs {
			if m>>node&1 == 1 {
				t := min(size, pairs[node])
				pairs[node] -= t
				size -= t
			}
		}
	}
}

// Offer is what a node would make of a pod.
type Offer struct {
	Pairs    int  // of the pod's GPUs and VFs, on one switch each
	Stranded int  // pairs more that free devices could make were it not for the switches
	Lost     Room // that the pod takes: before less after
	Free     int  // devices that stay free on the node
}

// Compare is above 0 where a is the better one: with more pairs; else the one that strands fewer; else the
// one on which less room is lost, for large containers first; else the fuller node, so that whole nodes stay
// free.
func Compare(a, b Offer) int {
	by := cmp.Or(cmp.Compare(a.Pairs, b.Pairs), cmp.Compare(b.Stranded, a.Stranded))
	for i := range a.Lost {
		by = cmp.Or(by, cmp.Compare(b.Lost[i], a.Lost[i]))
	}
	return cmp.Or(by, cmp.Compare(b.Free, a.Free))
}
