// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"math"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// group contains the GPUs of one switch and the VFs that they can be paired with.
type group struct {
	tree *topology.Tree
	gpus []*GPU
	vfs  []*VF
	// partner contains the best VF of the switch for every GPU with a VF there; the VFs are distinct if there
	// are enough.
	partner map[*GPU]*VF
	// reserved contains, for a strict group, the VFs that are published only with a GPU, whether or not a GPU
	// has them as its partner now.
	reserved []*VF
}

// isStrict reports whether every GPU can have a VF of its own and some VFs remain.
func (g *group) isStrict() bool { return len(g.vfs) > len(g.gpus) }

// canPair reports whether a GPU and a VF form a pair.
func (g *group) canPair(gpu *GPU, vf *VF) bool {
	return g.tree.Distance(gpu.Card, vf.Address).Level.Direct()
}

// newGroups assigns GPUs and VFs to their switches, in the order in which GPUs are published: by NUMA node,
// by hive, by switch. It also returns the VFs that cannot be paired with a GPU; on a node with RDMA these
// include VFs without RDMA.
func newGroups(machine *Machine, vfs []*VF) (found []*group, others []*VF) {
	bySwitch := map[string]*group{}
	for i := range machine.GPUs {
		gpu := &machine.GPUs[i]
		g := bySwitch[gpu.Switch]
		if g == nil {
			g = &group{tree: machine.Tree}
			bySwitch[gpu.Switch] = g
			found = append(found, g)
		}
		g.gpus = append(g.gpus, gpu)
	}
	rdma := slices.ContainsFunc(vfs, func(vf *VF) bool { return vf.RDMA != "" })
	for _, vf := range vfs {
		g := bySwitch[vf.Switch]
		if rdma && vf.RDMA == "" {
			g = nil // for a storage network or similar
		}
		if g != nil && slices.ContainsFunc(g.gpus, func(gpu *GPU) bool { return g.canPair(gpu, vf) }) {
			g.vfs = append(g.vfs, vf)
		} else {
			others = append(others, vf)
		}
	}
	slices.SortStableFunc(found, func(a, b *group) int {
		return comparePlaces(machine.Tree, a.gpus[0], b.gpus[0])
	})
	return found, others
}

// comparePlaces orders GPUs such that neighbours in the order are neighbours on the machine. Unknown NUMA
// nodes come last.
func comparePlaces(tree *topology.Tree, a, b *GPU) int {
	return cmp.Or(cmp.Compare(numaOrder(tree, a.Card), numaOrder(tree, b.Card)), cmp.Compare(a.Hive, b.Hive),
		a.Card.Compare(b.Card))
}

func numaOrder(tree *topology.Tree, a topology.Address) int {
	if place, ok := tree.Place(a); ok {
		if number, known := place.NUMA.Number(); known {
			return number
		}
	}
	return math.MaxInt
}

// matchPartners assigns a partner to every GPU; bound contains the VFs of claims. If there are enough VFs
// each GPU gets its own: bound VFs stay, a free GPU gets a free and usable VF, and for a GPU that is not free
// a reserved VF is kept.
func (g *group) matchPartners(
	links []topology.Link, bound map[string]*VF, inUse, unfit map[string]bool,
) {
	g.partner = map[*GPU]*VF{}
	isUsable := func(vf *VF) bool { return !unfit[vf.ID] }
	if !g.isStrict() {
		vfs := slices.DeleteFunc(slices.Clone(g.vfs), func(vf *VF) bool { return !isUsable(vf) })
		if len(vfs) == 0 {
			vfs = g.vfs
		}
		g.takePairs(g.pairNearest(g.gpus, vfs, len(vfs), links))
	}
	taken := map[*VF]bool{}
	for _, gpu := range g.gpus {
		vf := bound[gpu.ID]
		if slices.Contains(g.vfs, vf) && g.canPair(gpu, vf) && !taken[vf] {
			g.partner[gpu], taken[vf] = vf, true
		}
	}
	if !g.isStrict() {
		return
	}
	own := g.pairNearest(g.gpus, g.vfs, len(g.gpus), links)
	g.reserveVFs(own, isUsable)
	isFree := func(vf *VF) bool { return isUsable(vf) && !inUse[vf.ID] }
	isReserved := func(vf *VF) bool { return isFree(vf) && slices.Contains(g.reserved, vf) }
	for _, p := range own {
		if p.gpu.Held == "" && g.partner[p.gpu] == nil && !taken[p.vf] && isFree(p.vf) {
			g.partner[p.gpu], taken[p.vf] = p.vf, true
		}
	}
	for _, step := range []struct {
		held bool
		can  func(*VF) bool
	}{
		{false, isReserved}, {false, isFree}, {true, isReserved},
		{true, func(*VF) bool { return true }},
	} {
		gpus := slices.DeleteFunc(slices.Clone(g.gpus), func(gpu *GPU) bool {
			return g.partner[gpu] != nil || gpu.Held != "" && !step.held
		})
		vfs := slices.DeleteFunc(slices.Clone(g.vfs), func(vf *VF) bool {
			return taken[vf] || !step.can(vf)
		})
		n := min(len(gpus), len(vfs))
		pairs := g.pairNearest(gpus[:n], vfs, n, links)
		g.takePairs(pairs)
		for _, p := range pairs {
			taken[p.vf] = true
		}
	}
}

// reserveVFs selects the VFs that are kept for the GPUs, as many as can be paired: the VFs of their own
// pairs, and others in place of VFs that device plugins hold, or that were unhealthy from the start. Holders
// without a claim can only disappear, so a VF that was not reserved before becomes reserved only if it was
// not usable. A VF that was published alone, which a claim may have been allocated meanwhile, therefore never
// becomes part of a pair.
func (g *group) reserveVFs(own []pair, isUsable func(*VF) bool) {
	for _, p := range own {
		if isUsable(p.vf) {
			g.reserved = append(g.reserved, p.vf)
		}
	}
	isOwn := func(vf *VF) bool {
		return slices.ContainsFunc(own, func(p pair) bool { return p.vf == vf })
	}
	for _, vf := range byRail(g.vfs) {
		if len(g.reserved) < len(own) && isUsable(vf) && !isOwn(vf) {
			g.reserved = append(g.reserved, vf)
		}
	}
}

func (g *group) takePairs(pairs []pair) {
	for _, p := range pairs {
		g.partner[p.gpu] = p.vf
	}
}

// pair is a GPU and a VF of its switch.
type pair struct {
	gpu *GPU
	vf  *VF
}

// pairNearest pairs all given GPUs with the given number of VFs, as placement does: the nearest VFs, over all
// PFs, of one index. The devices of the smaller half serve equal shares of the larger half.
func (g *group) pairNearest(gpus []*GPU, vfs []*VF, count int, links []topology.Link) []pair {
	if len(gpus) == 0 || count == 0 {
		return nil
	}
	gpuByID, vfByID := map[string]*GPU{}, map[string]*VF{}
	gpuHalf := placement.Half{Count: len(gpus)}
	for _, gpu := range gpus {
		gpuByID[gpu.ID] = gpu
		gpuHalf.Free = append(gpuHalf.Free, placement.Device{ID: gpu.ID, Address: gpu.Card})
	}
	vfHalf := placement.Half{Count: count}
	for _, vf := range vfs {
		vfByID[vf.ID] = vf
		vfHalf.Free = append(vfHalf.Free, placement.Device{ID: vf.ID, Address: vf.Address})
	}
	request := placement.Request{GPUs: []placement.Half{gpuHalf}, VFs: []placement.Half{vfHalf}, Links: links}
	choice, err := placement.Choose(g.tree, request)
	if err != nil {
		return nil // impossible: there are as many as requested
	}
	found := make([]pair, 0, len(choice.Pairs))
	for _, p := range choice.Pairs {
		if gpu, vf := gpuByID[p.GPU.ID], vfByID[p.VF.ID]; g.canPair(gpu, vf) {
			found = append(found, pair{gpu, vf})
		}
	}
	return found
}

// byRail sorts VFs by their index within their PF; VFs with the same index keep their order.
func byRail(vfs []*VF) []*VF {
	return slices.SortedStableFunc(slices.Values(vfs), func(v, w *VF) int {
		return cmp.Compare(v.Index, w.Index)
	})
}

// groupByCard groups GPUs by card, in their order.
func groupByCard(gpus []*GPU) (sorted [][]*GPU) {
	place := map[topology.Address]int{}
	for _, gpu := range gpus {
		i, ok := place[gpu.Card]
		if !ok {
			i = len(sorted)
			place[gpu.Card] = i
			sorted = append(sorted, nil)
		}
		sorted[i] = append(sorted[i], gpu)
	}
	return sorted
}

func isPartitioned(card []*GPU) bool { return len(card) > 1 }

// subsets is the maximum number of sets of pairs on such switches of a node: before the scheduler finds that
// there are not enough it tries all free sets, at some 10 µs each.
const subsets = 1 << 13

// choosePairs selects the pairs of the switches with too few VFs to reserve them. It selects all pairs; on
// nodes with too many, every GPU is in a pair with one VF, and if those are still too many, each VF is in
// fewer pairs.
func (b *builder) choosePairs() map[*group][]pair {
	var lenient []*group
	sets, share := 1, 0
	for _, g := range b.groups {
		if g.isStrict() || len(g.vfs) == 0 {
			continue
		}
		lenient = append(lenient, g)
		sets = min(sets*countMatchings(len(g.gpus), len(g.vfs)), subsets+1)
		share = max(share, (len(g.gpus)+len(g.vfs)-1)/len(g.vfs))
	}
	all := sets <= subsets
	for ; share > 1 && !all && countSets(lenient, share) > subsets; share-- {
	}
	chosen := map[*group][]pair{}
	for _, g := range lenient {
		chosen[g] = g.partnerPairs(share)
		if all {
			chosen[g] = append(chosen[g], g.otherPairs()...)
			continue
		}
		const some = "switch %s: %d pairs of %d GPUs and %d VFs are published: with all %d the scheduler could " +
			"not tell in time that there are not enough"
		gpus, vfs := len(g.gpus), len(g.vfs)
		if len(chosen[g]) < gpus*vfs {
			b.addNote(some, g.gpus[0].Switch, len(chosen[g]), gpus, vfs, gpus*vfs)
		}
	}
	return chosen
}

// countMatchings counts the sets of pairs of GPUs and VFs with each device in at most one pair, up to the
// limit.
func countMatchings(gpus, vfs int) int {
	total, sets := 1, 1
	for k := range min(gpus, vfs) {
		sets = sets * (gpus - k) * (vfs - k) / (k + 1)
		total += sets
		if total > subsets {
			return subsets + 1
		}
	}
	return total
}

// countSets counts the sets of pairs in which every VF is paired with at most the given number of its
// partners, up to the limit.
func countSets(groups []*group, share int) int {
	sets := 1
	for _, g := range groups {
		perVF := map[*VF]int{}
		for _, p := range g.partnerPairs(share) {
			perVF[p.vf]++
		}
		for _, n := range perVF {
			sets = min(sets*(n+1), subsets+1)
		}
	}
	return sets
}

// partnerPairs returns the pairs of partners, with at most the given number for each VF.
func (g *group) partnerPairs(share int) (pairs []pair) {
	perVF := map[*VF]int{}
	for _, gpu := range g.gpus {
		if vf := g.partner[gpu]; vf != nil && perVF[vf] < share {
			perVF[vf]++
			pairs = append(pairs, pair{gpu, vf})
		}
	}
	return pairs
}

// otherPairs returns the pairs that are not partners.
func (g *group) otherPairs() (pairs []pair) {
	for _, gpu := range g.gpus {
		for _, vf := range g.vfs {
			if vf != g.partner[gpu] && g.canPair(gpu, vf) {
				pairs = append(pairs, pair{gpu, vf})
			}
		}
	}
	return pairs
}

// lenientUnit returns the devices of a switch with too few VFs to reserve them.
func lenientUnit(g *group, pairs []pair, links []topology.Link) (unit []item) {
	for _, card := range groupByCard(g.gpus) {
		if isPartitioned(card) {
			unit = append(unit, bundleOf(card...).withVFs(shareOf(g, card, links)...))
		}
	}
	for _, p := range pairs {
		unit = append(unit, namedPair(p.gpu, p.vf))
	}
	unit = append(unit, leftoverFirst(g.gpus, pairs)...)
	for _, vf := range byRail(g.vfs) {
		unit = append(unit, vfAlone(vf, rankPairedVF))
	}
	return unit
}

// leftoverFirst returns the single GPUs. GPU-only claims first take the GPUs that remain if each VF has one.
// They take partitions card by card: whole cards stay free, and a card's own VFs are as near.
func leftoverFirst(gpus []*GPU, pairs []pair) (unit []item) {
	first, served := map[*GPU]bool{}, map[*VF]bool{}
	for _, p := range pairs {
		if !served[p.vf] {
			first[p.gpu], served[p.vf] = true, true
		}
	}
	for _, card := range groupByCard(gpus) {
		for _, leftover := range []bool{true, false} {
			for _, gpu := range card {
				switch {
				case first[gpu] == leftover:
				case leftover && !isPartitioned(card):
					unit = append(unit, gpuAlone(gpu, rankGPU))
				default:
					unit = append(unit, gpuAlone(gpu, rankPairedGPU))
				}
			}
		}
	}
	return unit
}

// shareOf returns the VFs of a card if cards share the VFs of their switch: no VF is in two shares.
func shareOf(g *group, card []*GPU, links []topology.Link) (vfs []*VF) {
	var firsts []*GPU
	for _, c := range groupByCard(g.gpus) {
		firsts = append(firsts, c[0])
	}
	owner := map[*VF]*GPU{}
	for _, p := range g.pairNearest(firsts, g.vfs, len(g.vfs), links) {
		if owner[p.vf] == nil {
			owner[p.vf] = p.gpu
		}
	}
	for _, vf := range g.vfs {
		if owner[vf] == card[0] && len(vfs) < len(card) {
			vfs = append(vfs, vf)
		}
	}
	return vfs
}
