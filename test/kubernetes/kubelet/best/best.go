// SPDX-License-Identifier: Apache-2.0

package best

import (
	"errors"
	"fmt"

	"github.com/tandem-k8s/tandem/topology"
)

// Side is one half of a container's request: Want devices, all of those held already and the rest out of the
// free ones. There is one address per device, so partitions of one GPU repeat it.
type Side struct {
	Held []topology.Address
	Free []topology.Address
	Want int
}

// Of is the half of a container that holds exactly these devices.
func Of(held []topology.Address) Side { return Side{Held: held, Want: len(held)} }

// Reachable returns the best pairs that any choice of devices can give. A device is in one pair at most;
// where one half is larger, its rest goes without a partner.
//
// It is a matching of the largest total weight in the graph of all GPUs and VFs. A pair of one level weighs
// more than any number of pairs of the next, so that the largest weight is the best vector. The smaller half
// is filled up with blanks, partners that count for nothing. Devices that are held and blanks have to be
// matched: each brings a bonus that outweighs all pairs.
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

// vertex is a device, or a blank that stands for none.
type vertex struct {
	address topology.Address
	must    bool // has to be matched
	blank   bool
}

// vertices are the devices of one half, and the blanks that fill it up to size.
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

// weight is a number with base size+1 and one digit per level, the nearest the most significant. The bonus is
// the digit above.
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
