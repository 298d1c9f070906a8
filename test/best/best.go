// SPDX-License-Identifier: Apache-2.0

package best

import (
	"errors"
	"fmt"

	"github.com/tandem-k8s/tandem/topology"
)

// Side is one half of a container's request: Want devices, including all of Held, the rest from Free. Each
// device has an address, so partitions of one GPU repeat it.
type Side struct {
	Held []topology.Address
	Free []topology.Address
	Want int
}

// Of returns the half of a container with exactly these devices.
func Of(held []topology.Address) Side { return Side{Held: held, Want: len(held)} }

// Reachable returns the best pairs of any choice of devices. Each device is in at most one pair; the rest of
// a larger half has no partners.
//
// The result is a matching of maximum weight in the graph of all GPUs and VFs. A pair of one level weighs
// more than any number of pairs of the next level, so that maximum weight means the best vector. Blanks,
// partners of weight 0, fill up the smaller half. Held devices and blanks must be matched: each adds a bonus
// that exceeds the weight of all pairs.
func Reachable(gpus, vfs Side, level Level) (Pairs, error) {
	if err := errors.Join(gpus.check("GPUs"), vfs.check("VFs")); err != nil {
		return Pairs{}, err
	}
	size := max(gpus.Want, vfs.Want)
	left, right := gpus.vertices(size), vfs.vertices(size)
	m := newMatching(len(left), len(right), func(l, r int) int64 {
		return weight(left[l], right[r], level, size)
	})
	for range size {
		m.augment()
	}
	var pairs Pairs
	for l, r := range m.left {
		if r != unmatched && !left[l].blank && !right[r].blank {
			pairs[level(left[l].address, right[r].address)]++
		}
	}
	return pairs, nil
}

// maxWant keeps weights within an int64.
const maxWant = 255

func (s Side) check(what string) error {
	switch {
	case s.Want > maxWant:
		return fmt.Errorf("find best pairs: %d %s wanted, at most %d can be judged", s.Want, what, maxWant)
	case s.Want < len(s.Held):
		return fmt.Errorf("find best pairs: %d %s wanted, %d held", s.Want, what, len(s.Held))
	case s.Want > len(s.Held)+len(s.Free):
		return fmt.Errorf("find best pairs: %d %s wanted, %d held and %d free",
			s.Want, what, len(s.Held), len(s.Free))
	}
	return nil
}

// vertex is a device or a blank.
type vertex struct {
	address topology.Address
	must    bool // has to be matched
	blank   bool
}

// vertices returns the devices of one half, filled up with blanks to size.
func (s Side) vertices(size int) []vertex {
	var all []vertex
	for _, address := range s.Held {
		all = append(all, vertex{address: address, must: true})
	}
	for _, address := range s.Free {
		all = append(all, vertex{address: address})
	}
	for range size - s.Want {
		all = append(all, vertex{must: true, blank: true})
	}
	return all
}

// weight is a number in base size+1 with one digit per level, the nearest the most significant, and the bonus
// as the digit above.
func weight(gpu, vf vertex, level Level, size int) int64 {
	digit := func(n int) int64 {
		w := int64(1)
		for range n {
			w *= int64(size + 1)
		}
		return w
	}
	var w int64
	if !gpu.blank && !vf.blank {
		w = digit(topology.Levels - 1 - int(level(gpu.address, vf.address)))
	}
	for _, v := range []vertex{gpu, vf} {
		if v.must {
			w += digit(topology.Levels)
		}
	}
	return w
}
