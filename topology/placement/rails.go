package placement

import (
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement/solver"
)

// rails picks the VFs of the PFs whose numbers are settled: those of one index on many PFs, as NCCL expects
// of rails and planes. The index that most PFs can give is taken from all of them, the lowest where several
// are as good, and so on. With what is held counted in, no other picks have an index on more PFs, then a
// lower such index, then a next index on more PFs …
type rails struct {
	pools  []railed
	counts []int32 // by index: the PFs that can give it
}

// railed is a pool that gives VFs.
type railed struct {
	*solver.Pool
	devices []Device
	picked  int     // the first so many devices are picked, held ones included
	indices []int32 // of the devices; noIndex for those counted already and those that have none
}

const noIndex = -1

// alignRails moves the VFs that are picked of every PF to the front of its list.
func (p *places) alignRails() {
	if p.pfsTaken() < 2 {
		return // the lowest are in front
	}
	r := rails{pools: make([]railed, 0, len(p.pfs))}
	indices := 0
	for _, f := range p.pfs {
		var vfs []topology.Address
		if d, ok := p.tree.Device(f.address); ok {
			vfs = d.VFs
		}
		for i := range f.Pools {
			if l := &f.Pools[i]; l.Taken > 0 {
				r.pools = append(r.pools, railed{
					Pool: l, devices: p.devices[l.Number], picked: l.Held, indices: p.fills.take(l.Most),
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

// setIndices looks devices up in the list of a PF's VFs. Both lists ascend, so the next is most likely right
// behind the last one found.
func (f *railed) setIndices(vfs []topology.Address) {
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

// gives reports whether the pool can give its i-th device: it has to, or it may and is not done.
func (f *railed) gives(i int) bool {
	return f.indices[i] != noIndex && (i < f.Held || f.picked < f.Taken)
}

// pick picks the VFs of one index. It reports whether there is more to pick: where no index is on two PFs,
// the lowest VFs will do.
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

// take picks the VF with an index, if the pool can give it.
func (f *railed) take(index int32) {
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
