// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// oneByOne chooses one resource after another, then pairs the chosen devices. It is the fallback for requests
// that exceed the step limit.
func oneByOne(t *topology.Tree, r Request, steps int) (Choice, error) {
	steps /= 2 * (len(r.GPUs) + len(r.VFs) + 1)
	for i, h := range r.GPUs {
		marked, err := markFor(t, Request{[]Half{next(r.GPUs, i)}, merged(r.VFs), r.Links, r.Spare, r.Taken}, steps)
		if err != nil {
			return Choice{}, err
		}
		r.GPUs[i], r.Spare.GPUs = h.settled(marked.GPUs), slices.Concat(r.Spare.GPUs, h.Free)
	}
	r.Links = nil // links have no influence on the pairs
	for i, h := range r.VFs {
		marked, err := markFor(t, Request{merged(r.GPUs), []Half{next(r.VFs, i)}, nil, r.Spare, r.Taken}, steps)
		if err != nil {
			return Choice{}, err
		}
		r.VFs[i], r.Spare.VFs = h.settled(marked.VFs), slices.Concat(r.Spare.VFs, h.Free)
	}
	r.GPUs, r.VFs = merged(r.GPUs), merged(r.VFs)
	c, err := choose(t, r, steps)
	c.Optimal = false
	return c, err
}

// markFor chooses for a request with at most one resource of each kind.
func markFor(t *topology.Tree, r Request, steps int) (Devices, error) {
	a, err := prepare(t, r, steps)
	if err != nil {
		return Devices{}, err
	}
	a.mark()
	return a.marked(), nil
}

// next returns the i-th half together with the held devices of the others.
func next(halves []Half, i int) Half {
	h := halves[i]
	held := merged(halves)[0].Held
	return Half{Count: len(held) + h.Count - len(h.Held), Held: held, Free: h.Free}
}

// settled returns the half with its share of the chosen devices as held devices.
func (h Half) settled(chosen []Device) Half {
	own := make(map[string]bool, len(h.Held)+len(h.Free))
	for _, d := range slices.Concat(h.Held, h.Free) {
		own[d.ID] = true
	}
	return Half{
		Count: h.Count, Held: slices.DeleteFunc(slices.Clone(chosen), func(d Device) bool { return !own[d.ID] }),
	}
}

// merged merges several halves into one.
func merged(halves []Half) []Half {
	var all Half
	for _, h := range halves {
		all.Count += h.Count
		all.Held = append(all.Held, h.Held...)
		all.Free = append(all.Free, h.Free...)
	}
	return []Half{all}
}
