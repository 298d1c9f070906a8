// SPDX-License-Identifier: Apache-2.0

// Package rank compares nodes for a pod: the rule of the scheduler plugin, and of the simulation of a
// cluster.
package rank

import (
	"cmp"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// Sizes are the numbers of same-switch pairs for which room is kept, the largest first.
var Sizes = [...]int{8, 4, 2, 1}

// Room is, for each of [Sizes], the number of containers with that many pairs that the kubelet could admit
// one after the other with all their pairs on one switch each, if no other pods came; at most mostRoom.
type Room [len(Sizes)]int

// mostRoom is how many containers of a size are looked at. A machine has fewer pairs, unless its GPUs and
// NICs are shared out many times.
const mostRoom = 128

// Fit returns the room in the free same-switch pairs, given by NUMA node. Admit returns the kubelet's verdict
// on a container of a size with these free pairs: its NUMA nodes, or false for a refusal.
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

// take takes pairs from NUMA nodes, and the rest from the other nodes.
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

// Offer is the result of a node for a pod.
type Offer struct {
	Pairs    int  // same-switch pairs of the pod's GPUs and VFs
	Stranded int  // see Devices, after the pod, including pairs that were stranded before
	Lost     Room // room before the pod less room after
	Free     int  // see Devices, after the pod
}

// Devices are the free devices of a node.
type Devices interface {
	// Stranded returns the number of pairs that the devices could only make regardless of switches.
	Stranded() int
	// Room returns the room in the devices.
	Room() Room
	// Free returns the number of devices.
	Free() int
}

// NewOffer returns the offer of a node for a pod with a number of same-switch pairs: from the room before the
// pod, and the free devices after.
func NewOffer(pairs int, before Room, after Devices) Offer {
	o := Offer{Pairs: pairs, Stranded: after.Stranded(), Lost: before, Free: after.Free()}
	for i, left := range after.Room() {
		o.Lost[i] -= left
	}
	return o
}

// Compare returns a positive number if a is better than b: by more pairs; else by fewer stranded pairs; else
// by less lost room, for large containers first; else by fewer free devices, so that whole nodes stay free.
func Compare(a, b Offer) int {
	by := cmp.Or(cmp.Compare(a.Pairs, b.Pairs), cmp.Compare(b.Stranded, a.Stranded))
	for i := range a.Lost {
		by = cmp.Or(by, cmp.Compare(b.Lost[i], a.Lost[i]))
	}
	return cmp.Or(by, cmp.Compare(b.Free, a.Free))
}
