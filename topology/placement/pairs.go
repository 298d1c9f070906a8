// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// unit is one participation of a device in a pair.
type unit struct {
	device Device
	turn   int // 0 for the device's first pair, 1 for its second …
}

// matcher forms the pairs of the marked devices.
type matcher struct {
	*shares
	places     *places
	pairs      []Pair
	redirected bool   // some pair is at a place that redirects
	gpus, vfs  []unit // devices without a partner until now
}

// matchBelow forms the pairs below a place: as many as possible at every place, from the groups up, the first
// pair of each device before any second pair, the lowest GPU with the lowest VF. Devices without a partner
// remain for the place above.
func (m *matcher) matchBelow(n *place) {
	fromGPUs, fromVFs := len(m.gpus), len(m.vfs)
	if n.Kind == kindGroup {
		m.gpus = appendUnits(m.gpus, m.places.takenGPUs(n, nil), m.PerGPU, n.Chosen.Extras*min(m.GPUExtra, 1))
		m.vfs = appendUnits(m.vfs, m.places.takenVFs(n, nil), m.PerVF, n.Chosen.Extras*min(m.VFExtra, 1))
	} else {
		for _, child := range n.Children {
			m.matchBelow(child)
		}
	}
	gpus, vfs := m.gpus[fromGPUs:], m.vfs[fromVFs:]
	slices.SortFunc(gpus, compareUnits)
	slices.SortFunc(vfs, compareUnits)
	made := min(len(gpus), len(vfs))
	m.redirected = m.redirected || made > 0 && n.Redirect > 0
	for i := range made {
		m.pairs = append(m.pairs, Pair{GPU: gpus[i].device, VF: vfs[i].device})
	}
	m.gpus, m.vfs = slices.Delete(m.gpus, fromGPUs, fromGPUs+made), slices.Delete(m.vfs, fromVFs, fromVFs+made)
}

func compareUnits(a, b unit) int {
	if a.turn != b.turn {
		return cmp.Compare(a.turn, b.turn)
	}
	return compareDevices(a.device, b.device)
}

// appendUnits appends the units of devices that are each in the given number of pairs, and the first few in
// one more.
func appendUnits(units []unit, devices []Device, each, extras int) []unit {
	slices.SortFunc(devices, compareDevices)
	for i, d := range devices {
		turns := each
		if i < extras {
			turns++
		}
		for turn := range turns {
			units = append(units, unit{d, turn})
		}
	}
	return units
}

// sortPairs sorts pairs in the order that Choose documents, and the VFs in the order of the pairs.
func sortPairs(t *topology.Tree, pairs []Pair, vfs []Device) {
	for i := range pairs {
		pairs[i].Distance = t.Distance(pairs[i].GPU.Address, pairs[i].VF.Address)
	}
	slices.SortFunc(pairs, func(a, b Pair) int {
		return cmp.Or(compareDevices(a.GPU, b.GPU), a.Distance.Compare(b.Distance), compareDevices(a.VF, b.VF))
	})
	sortRounds(pairs)
	if len(vfs) == len(pairs) {
		for i, p := range pairs {
			vfs[i] = p.VF
		}
		return
	}
	seen := make(map[string]bool, len(vfs))
	for _, p := range pairs {
		if !seen[p.VF.ID] {
			vfs[len(seen)] = p.VF
			seen[p.VF.ID] = true
		}
	}
}

// countRedirected returns the number of pairs with a redirecting port on their way.
func countRedirected(t *topology.Tree, pairs []Pair) int {
	n := 0
	for _, p := range pairs {
		ports := t.Ports(p.GPU.Address, p.VF.Address)
		if slices.ContainsFunc(ports, func(at topology.Port) bool { return at.Redirects }) {
			n++
		}
	}
	return n
}

// sortRounds sorts pairs by rounds: the first pair of each GPU, then the second pair of each GPU that has
// one, and so on.
func sortRounds(pairs []Pair) {
	byGPU := slices.Clone(pairs)
	var turns, from []int // turns: the round of each pair; from: the first position of each round
	for i := range byGPU {
		turn := 0
		if i > 0 && byGPU[i].GPU == byGPU[i-1].GPU {
			turn = turns[i-1] + 1
		}
		turns = append(turns, turn)
		if turn+1 >= len(from) {
			from = append(from, make([]int, turn+2-len(from))...)
		}
		from[turn+1]++
	}
	for i := 1; i < len(from); i++ {
		from[i] += from[i-1]
	}
	for i, turn := range turns {
		pairs[from[turn]] = byGPU[i]
		from[turn]++
	}
}

// rails selects the VFs of PFs, for a decided number of VFs per PF: VFs of one index on many PFs, as NCCL
// expects of rails and planes. Greedily, the index available on most PFs is selected on all of these, the
// lowest index of equals first. With held VFs included, the result is the best by criterion 10.
type rails struct {
	pools  []railPool
	counts []int32 // by index: number of PFs that can give it
}

// railPool is a pool that gives VFs.
type railPool struct {
	*pool
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
					pool: l, devices: p.devices[l.Number], picked: l.Held, indices: make([]int32, l.Most),
				})
				r.pools[len(r.pools)-1].setIndices(vfs)
				indices = max(indices, len(vfs))
			}
		}
	}
	r.counts = make([]int32, indices)
	for r.pickIndex() {
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

// canGive reports whether the pool can give its i-th device: a held device, or a free device if more are
// needed.
func (f *railPool) canGive(i int) bool {
	return f.indices[i] != noIndex && (i < f.Held || f.picked < f.Taken)
}

// pickIndex selects the VFs of one index. It reports whether another index is on two PFs; otherwise the
// lowest VFs remain selected.
func (r *rails) pickIndex() bool {
	clear(r.counts)
	missing := false
	for i := range r.pools {
		f := &r.pools[i]
		missing = missing || f.picked < f.Taken
		for k, index := range f.indices {
			if f.canGive(k) {
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
		r.pools[i].takeIndex(int32(best))
	}
	return true
}

// takeIndex selects the VF with an index, if the pool can give it.
func (f *railPool) takeIndex(index int32) {
	for i := range f.indices {
		if f.indices[i] != index || !f.canGive(i) {
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
