package placement

import (
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// oneByOne settles one resource after the other, then pairs what was chosen. It is for what takes too long to settle together.
func oneByOne(t *topology.Tree, r Request, steps int) (Choice, error) {
	steps /= 2 * (len(r.GPUs) + len(r.VFs) + 1)
	for i, h := range r.GPUs {
		chosen, err := choose(t, Request{[]Half{next(r.GPUs, i)}, merged(r.VFs), r.Links, r.Load, r.Spare}, steps)
		if err != nil {
			return Choice{}, err
		}
		r.GPUs[i], r.Spare.GPUs = h.settled(chosen.GPUs), slices.Concat(r.Spare.GPUs, h.Free)
	}
	for i, h := range r.VFs {
		chosen, err := choose(t, Request{merged(r.GPUs), []Half{next(r.VFs, i)}, r.Links, r.Load, r.Spare}, steps)
		if err != nil {
			return Choice{}, err
		}
		r.VFs[i], r.Spare.VFs = h.settled(chosen.VFs), slices.Concat(r.Spare.VFs, h.Free)
	}
	r.GPUs, r.VFs = merged(r.GPUs), merged(r.VFs)
	c, err := choose(t, r, steps)
	c.Optimal = false
	return c, err
}

// next is the i-th half as one that is asked for beside what is held of the others.
func next(halves []Half, i int) Half {
	h := halves[i]
	held := merged(halves)[0].Held
	return Half{Count: len(held) + h.Count - len(h.Held), Held: held, Free: h.Free}
}

// settled is the half when it has its share of what was chosen.
func (h Half) settled(chosen []Device) Half {
	held := slices.DeleteFunc(slices.Clone(chosen), func(d Device) bool { return !slices.Contains(h.Held, d) && !slices.Contains(h.Free, d) })
	return Half{Count: h.Count, Held: held}
}

// merged is one half in the place of several.
func merged(halves []Half) []Half {
	var all Half
	for _, h := range halves {
		all.Count += h.Count
		all.Held = append(all.Held, h.Held...)
		all.Free = append(all.Free, h.Free...)
	}
	return []Half{all}
}
