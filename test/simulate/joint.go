// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// jointly maximizes, for one container at a time, the pairs; then the possible same-switch pairs that remain;
// then GPUs that share switches, then VFs on PFs of their own, then the spread of VFs over switches. It
// counts devices by switch and tries all numbers for each switch. It does not use package placement, for
// which it is the reference.
type jointly struct {
	node   *Node
	pools  []pool
	best   []int64 // by switch and devices taken before: the best score
	take   []taking
	wanted taking
}

// taking is a number of devices of each kind.
type taking struct{ gpus, vfs int }

// pool is the devices of a switch; the last pool has the devices without a switch.
type pool struct {
	may   [2][]int // available devices
	free  [2]int   // free in all
	given [2]int   // devices that the container has already
	pfs   int      // PFs of the available VFs
}

// Weights of the parts of a score, in descending order, with room for 64 GPUs and 8,000 VFs.
const (
	onePair     = 1 << 54
	oneLeft     = 1 << 46
	oneNear     = 1 << 32
	oneOwnPF    = 1 << 24
	unreachable = -1
)

func joint(n *Node) Prefer {
	j := &jointly{node: n}
	return func(s *State, q Question, _ *rand.Rand) []int {
		var may [2][]int
		may[q.Kind] = q.Available
		if other := q.Kind.Other(); len(q.Allocated[other]) == 0 {
			may[other] = s.Offered(other, q)
		}
		j.fill(s, q, may)
		if j.solve() == unreachable {
			return nil
		}
		return j.chosen(q.Kind)
	}
}

// fill sorts devices into pools.
func (j *jointly) fill(s *State, q Question, may [2][]int) {
	n := j.node
	j.pools = make([]pool, n.Switches+1)
	for _, kind := range Kinds {
		for i := range n.Switches {
			j.pools[i].free[kind] = s.FreeOn(kind, i)
		}
		for _, i := range may[kind] {
			p := &j.pools[j.at(kind, i)]
			p.may[kind] = append(p.may[kind], i)
		}
		for _, i := range q.Allocated[kind] {
			j.pools[j.at(kind, i)].given[kind]++
		}
	}
	for i := range j.pools {
		j.pools[i].pfs = j.spread(j.pools[i].may[VF])
	}
	j.wanted = taking{q.Request.GPUs - len(q.Allocated[GPU]), q.Request.VFs - len(q.Allocated[VF])}
}

func (j *jointly) at(kind Kind, i int) int {
	if at := j.node.Devices[kind][i].Switch; at >= 0 {
		return at
	}
	return len(j.pools) - 1
}

// spread sorts VFs so that the first ones are on different PFs, those with the most free VFs first, and
// returns the number of PFs.
func (j *jointly) spread(vfs []int) int {
	on := map[int][]int{}
	for _, i := range vfs {
		pf := j.node.Devices[VF][i].PF
		on[pf] = append(on[pf], i)
	}
	turn := make(map[int]int, len(vfs)) // of each VF on its PF
	for _, list := range on {
		for t, i := range list {
			turn[i] = t
		}
	}
	size := func(i int) int { return len(on[j.node.Devices[VF][i].PF]) }
	slices.SortStableFunc(vfs, func(a, b int) int { return cmp.Or(turn[a]-turn[b], size(b)-size(a), a-b) })
	return len(on)
}

// solve computes, pool by pool, the best score for every number of GPUs and VFs taken so far.
func (j *jointly) solve() int64 {
	w := j.wanted
	width := (w.gpus + 1) * (w.vfs + 1)
	j.best = slices.Grow(j.best[:0], (len(j.pools)+1)*width)[:(len(j.pools)+1)*width]
	j.take = slices.Grow(j.take[:0], len(j.best))[:len(j.best)]
	for i := range j.best {
		j.best[i] = unreachable
	}
	j.best[0] = 0
	for i := range j.pools {
		p := &j.pools[i]
		here, next := j.best[i*width:(i+1)*width], j.best[(i+1)*width:(i+2)*width]
		take := j.take[(i+1)*width : (i+2)*width]
		for at, score := range here {
			if score == unreachable {
				continue
			}
			gpus, vfs := at/(w.vfs+1), at%(w.vfs+1)
			for g := 0; g <= min(len(p.may[GPU]), w.gpus-gpus); g++ {
				for v := 0; v <= min(len(p.may[VF]), w.vfs-vfs); v++ {
					to := (gpus+g)*(w.vfs+1) + vfs + v
					if s := score + j.score(p, g, v); s > next[to] {
						next[to], take[to] = s, taking{g, v}
					}
				}
			}
		}
	}
	return j.best[len(j.best)-1]
}

// score returns the value of taking g GPUs and v VFs from a pool; 0 for the pool without a switch.
func (j *jointly) score(p *pool, g, v int) int64 {
	if p == &j.pools[len(j.pools)-1] {
		return 0
	}
	gpus, vfs := p.free[GPU]-g, p.free[VF]-v // remaining free devices
	g, v = g+p.given[GPU], v+p.given[VF]
	own := min(g, v, p.pfs+p.given[VF])
	return int64(min(g, v))*onePair + int64(min(gpus, vfs))*oneLeft + int64(g*g)*oneNear + int64(own)*oneOwnPF +
		even(vfs)
}

// even is concave in the free VFs of a switch, so that the sum over all switches is largest if VFs are taken
// from the switches with the most free ones.
func even(free int) int64 { return int64(free * (4095 - free) / 2) }

// chosen follows the best score back to the devices of a kind.
func (j *jointly) chosen(kind Kind) []int {
	width := len(j.best) / (len(j.pools) + 1)
	at := width - 1
	var devices []int
	for i := len(j.pools) - 1; i >= 0; i-- {
		t := j.take[(i+1)*width+at]
		at -= t.gpus*(j.wanted.vfs+1) + t.vfs
		n := t.gpus
		if kind == VF {
			n = t.vfs
		}
		devices = append(devices, j.pools[i].may[kind][:n]...)
	}
	return devices
}
