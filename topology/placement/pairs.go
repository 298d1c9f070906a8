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

// match makes the pairs of what is marked: as many as possible at every place, from the groups up, each device's first pair before any
// second one, the lowest GPU with the lowest VF. It returns what finds no partner below.
func (n *place) match(s *shares, pairs *[]Pair) (gpus, vfs []unit) {
	if n.kind == groupPlace {
		gpus, vfs = n.groupUnits(s)
	} else {
		for _, child := range n.children {
			g, v := child.match(s, pairs)
			gpus, vfs = append(gpus, g...), append(vfs, v...)
		}
	}
	slices.SortFunc(gpus, compareUnits)
	slices.SortFunc(vfs, compareUnits)
	made := min(len(gpus), len(vfs))
	for i := range made {
		*pairs = append(*pairs, Pair{GPU: gpus[i].device, VF: vfs[i].device})
	}
	return gpus[made:], vfs[made:]
}

func compareUnits(a, b unit) int {
	if a.turn != b.turn {
		return cmp.Compare(a.turn, b.turn)
	}
	return compareDevices(a.device, b.device)
}

func (n *place) groupUnits(s *shares) (gpus, vfs []unit) {
	return inTurns(n.takenGPUs(nil), s.perGPU, n.chosen.extras*min(s.gpuExtra, 1)),
		inTurns(n.takenVFs(nil), s.perVF, n.chosen.extras*min(s.vfExtra, 1))
}

// inTurns makes the units of devices that take part in some pairs each and the first few in one more.
func inTurns(devices []Device, each, extras int) []unit {
	slices.SortFunc(devices, compareDevices)
	units := make([]unit, 0, len(devices)*each+extras)
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
	if n.kind == cardPlace {
		return append(taken, n.devices[:n.chosen.gpus]...)
	}
	for _, child := range n.children {
		taken = child.takenGPUs(taken)
	}
	return taken
}

// takenVFs appends the VFs that are marked below a place.
func (n *place) takenVFs(taken []Device) []Device {
	for _, child := range n.children {
		taken = child.takenVFs(taken)
	}
	if n.kind != groupPlace {
		return taken
	}
	further := make([]int, len(n.pfs))
	for _, i := range n.fill[:n.chosen.vfs-n.vfs.held] {
		further[i]++
	}
	for i, f := range n.pfs {
		taken = append(taken, f.devices[:f.held+further[i]]...)
	}
	return taken
}

// inOrder sorts pairs as Choose promises and returns the VFs in that order.
func inOrder(t *topology.Tree, pairs []Pair) []Device {
	type ranked struct {
		Pair
		turn int
	}
	all := make([]ranked, len(pairs))
	for i, p := range pairs {
		p.Distance = t.Distance(p.GPU.Address, p.VF.Address)
		all[i] = ranked{Pair: p}
	}
	slices.SortFunc(all, func(a, b ranked) int {
		return cmp.Or(compareDevices(a.GPU, b.GPU), a.Distance.Compare(b.Distance), compareDevices(a.VF, b.VF))
	})
	for i := 1; i < len(all); i++ {
		if all[i].GPU == all[i-1].GPU {
			all[i].turn = all[i-1].turn + 1
		}
	}
	slices.SortStableFunc(all, func(a, b ranked) int { return cmp.Compare(a.turn, b.turn) })
	vfs := make([]Device, 0, len(pairs))
	seen := make(map[string]bool, len(pairs))
	for i, p := range all {
		pairs[i] = p.Pair
		if !seen[p.VF.ID] {
			seen[p.VF.ID] = true
			vfs = append(vfs, p.VF)
		}
	}
	return vfs
}
