package placement

import (
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// oneByOne settles one resource after the other, then pairs what was chosen.
func oneByOne(t *topology.Tree, r Request) (Choice, error) {
	gpus, vfs := r.GPUs, r.VFs
	r.GPUs, r.VFs = slices.Clone(gpus), slices.Clone(vfs)
	for _, halves := range [][]Half{r.GPUs, r.VFs} {
		for i, h := range halves {
			held := merged(halves).Held
			missing := max(h.Count-len(h.Held), 0)
			asked := Request{GPUs: r.GPUs, VFs: r.VFs, Links: r.Links, Load: r.Load, Spare: r.Spare}
			half := []Half{{Count: len(held) + missing, Held: held, Free: h.Free}}
			if len(r.GPUs) > 0 && &halves[0] == &r.GPUs[0] {
				asked.GPUs = half
			} else {
				asked.VFs = half
			}
			c, err := choose(t, asked, maxSteps)
			if err != nil {
				return Choice{}, err
			}
			halves[i] = Half{Count: h.Count, Held: slices.DeleteFunc(slices.Concat(c.GPUs, c.VFs), func(d Device) bool {
				return !slices.Contains(h.Free, d) && !slices.Contains(h.Held, d)
			})}
		}
	}
	for _, h := range gpus {
		r.Spare.GPUs = slices.Concat(r.Spare.GPUs, h.Free)
	}
	for _, h := range vfs {
		r.Spare.VFs = slices.Concat(r.Spare.VFs, h.Free)
	}
	c, err := choose(t, r, maxSteps)
	c.Optimal = false
	return c, err
}

// merged is one half in the place of several.
func merged(halves []Half) Half {
	if len(halves) == 1 {
		return halves[0]
	}
	var all Half
	for _, h := range halves {
		all.Count += max(h.Count, len(h.Held))
		all.Held = append(all.Held, h.Held...)
		all.Free = append(all.Free, h.Free...)
	}
	return all
}
