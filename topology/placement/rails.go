// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement/solver"
)

// rails selects the VFs of PFs, for a decided number of VFs per PF: VFs of one index on many PFs, as NCCL
// expects of rails and planes. Greedily, the index available on most PFs is selected on all of these, the
// lowest index of equals first. With held VFs included, the result is the best by criterion 10.
type rails struct {
	pools  []railPool
	counts []int32 // by index: number of PFs that can give it
}

// railPool is a pool that gives VFs.
type railPool struct {
	*solver.Pool
	devices []Device
	picked  int     // the first picked devices are selected, including held ones
	indices []int32 // index of each device; noIndex for devices that are already counted or have no index
}

const noIndex = -1

// alignRails moves the selected VFs of every PF to the front of its list.
func (p *places) alignRails() {
	if p.pfsTaken() < 2 {
		return // the lowest VFs are in front
	}
	r := rails{pools: make([]railPool, 0, len(p.pfs))}
	indices := 0
	for _, f := range p.pfs {
		var vfs []topology.Address
		if d, ok := p.tree.Device(f.address); ok {
			vfs = d.VFs
		}
		for i := range f.Pools {
			if l := &f.Pools[i]; l.Taken > 0 {
				r.pools = append(r.pools, railPool{
					Pool: l, devices: p.devices[l.Number], picked: l.Held, indices: p.numbers.take(l.Most),
				})
				r.pools[len(r.pools)-1].setIndices(vfs)
				indices = max(indices, len(vfs))
			}
		}
	}
	r.counts = make([]int32, indices)
	for r.pick() {
	}
}

// setIndices finds the index of each device in the list of a PF's VFs. Both lists ascend, so the search
// continues after the previous match.
func (f *railPool) setIndices(vfs []topology.Address) {
	next := 0
	for i, d := range f.devices {
		f.indices[i] = noIndex
		for range vfs {
			next %= len(vfs)
			next++
			if vfs[next-1] == d.Address {
				f.indices[i] = int32(next - 1)
				break
			}
		}
	}
}

// gives reports whether the pool can give its i-th device: a held device, or a free device if more are
// needed.
func (f *railPool) gives(i int) bool {
	return f.indices[i] != noIndex && (i < f.Held || f.picked < f.Taken)
}

// pick selects the VFs of one index. It reports whether another index is on two PFs; otherwise the lowest VFs
// remain selected.
func (r *rails) pick() bool {
	clear(r.counts)
	missing := false
	for i := range r.pools {
		f := &r.pools[i]
		missing = missing || f.picked < f.Taken
		for k, index := range f.indices {
			if f.gives(k) {
				r.counts[index]++
			}
		}
	}
	best := 0
	for index, n := range r.counts {
		if n > r.counts[best] {
			best = index
		}
	}
	if !missing || len(r.counts) == 0 || r.counts[best] < 2 {
		return false
	}
	for i := range r.pools {
		r.pools[i].take(int32(best))
	}
	return true
}

// take selects the VF with an index, if the pool can give it.
func (f *railPool) take(index int32) {
	for i := range f.indices {
		if f.indices[i] != index || !f.gives(i) {
			continue
		}
		f.indices[i] = noIndex
		if i >= f.Held {
			d := f.devices[i]
			copy(f.devices[f.picked+1:i+1], f.devices[f.picked:i])
			copy(f.indices[f.picked+1:i+1], f.indices[f.picked:i])
			f.devices[f.picked], f.indices[f.picked] = d, noIndex
			f.picked++
		}
		return
	}
}
