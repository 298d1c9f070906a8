package placement

import (
	"cmp"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// unit is one of the pairs that a device takes part in.
type unit struct {
	device Device
	turn   int // 0 for the device's first pair, 1 for its second …
}

// matcher makes the pairs of what is marked.
type matcher struct {
	*shares
	pairs      []Pair
	redirected int      // of pairs
	gpus, vfs  []unit   // without a partner so far
	devices    []Device // for listing those of a group
}

func newMatcher(s *shares) *matcher {
	return &matcher{
		shares: s, pairs: make([]Pair, 0, s.pairs), gpus: make([]unit, 0, s.pairs), vfs: make([]unit, 0, s.pairs),
		devices: make([]Device, 0, s.pairs),
	}
}

// match makes the pairs below a place: as many as possible at every place, from the groups up, each device's first pair before any
// second one, the lowest GPU with the lowest VF. What finds no partner below stays.
func (m *matcher) match(n *place) {
	fromGPUs, fromVFs := len(m.gpus), len(m.vfs)
	if n.kind == groupPlace {
		m.devices = n.takenGPUs(m.devices[:0])
		m.gpus = inTurns(m.gpus, m.devices, m.perGPU, n.chosen.extras*min(m.gpuExtra, 1))
		m.devices = n.takenVFs(m.devices[:0])
		m.vfs = inTurns(m.vfs, m.devices, m.perVF, n.chosen.extras*min(m.vfExtra, 1))
	} else {
		for _, child := range n.children {
			m.match(child)
		}
	}
	gpus, vfs := m.gpus[fromGPUs:], m.vfs[fromVFs:]
	slices.SortFunc(gpus, compareUnits)
	slices.SortFunc(vfs, compareUnits)
	made := min(len(gpus), len(vfs))
	m.redirected += made * int(n.redirect)
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

// inTurns appends the units of devices that take part in some pairs each and the first few in one more.
func inTurns(units []unit, devices []Device, each, extras int) []unit {
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

// takenGPUs appends the GPUs that are marked below a place.
func (n *place) takenGPUs(taken []Device) []Device {
	for _, child := range n.children {
		taken = child.takenGPUs(taken)
	}
	return appendTaken(taken, n.pools)
}

// takenVFs appends the VFs that are marked below a place.
func (n *place) takenVFs(taken []Device) []Device {
	for _, child := range n.children {
		taken = child.takenVFs(taken)
	}
	for _, f := range n.pfs {
		taken = appendTaken(taken, f.pools)
	}
	return taken
}

func appendTaken(taken []Device, pools []pool) []Device {
	for i := range pools {
		taken = append(taken, pools[i].devices[:pools[i].taken]...)
	}
	return taken
}

// countTaken counts the devices that are marked in every pool below a place.
func (s *solver) countTaken(n *place) {
	for _, child := range n.children {
		s.countTaken(child)
	}
	switch n.kind {
	case cardPlace:
		if s.mixing.gpus {
			s.mixing.takeGPUs(n)
		} else {
			n.pools[0].taken = n.chosen.gpus
		}
	case groupPlace:
		if s.mixing.vfs {
			s.mixing.takeVFs(n)
		} else {
			n.takeVFs()
		}
	}
}

// takeVFs counts the VFs that are marked of the PFs of a group.
func (n *place) takeVFs() {
	for _, f := range n.pfs {
		f.taken = f.held
	}
	for _, i := range n.fill[:n.chosen.vfs-n.vfs.held] {
		n.pfs[i].taken++
	}
	for _, f := range n.pfs {
		f.pools[0].taken = f.taken
	}
}

// inOrder sorts pairs as Choose promises, and the VFs as they come in the pairs.
func inOrder(t *topology.Tree, pairs []Pair, vfs []Device) {
	for i := range pairs {
		pairs[i].Distance = t.Distance(pairs[i].GPU.Address, pairs[i].VF.Address)
	}
	slices.SortFunc(pairs, func(a, b Pair) int {
		return cmp.Or(compareDevices(a.GPU, b.GPU), a.Distance.Compare(b.Distance), compareDevices(a.VF, b.VF))
	})
	round(pairs)
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

// round puts pairs in the order of the rounds: the first of each GPU, then the second of each that has one …
func round(pairs []Pair) {
	byGPU := slices.Clone(pairs)
	var turns, from []int // of a pair: which of its GPU's it is; of a round: where it begins
	for i := range byGPU {
		turn := 0
		if i > 0 && byGPU[i].GPU == byGPU[i-1].GPU {
			turn = turns[i-1] + 1
		}
		if turns = append(turns, turn); turn+1 >= len(from) {
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
