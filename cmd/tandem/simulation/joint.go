// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// jointly maximizes, for one container at a time, the pairs; then the possible same-switch pairs that remain;
// then GPUs that share switches, then VFs on PFs of their own, then the spread of VFs over switches. It
// counts devices by switch and tries all numbers for each switch. It does not use package placement, for
// which it is the reference.
//
// With keeps set, it also reserves partners: before GPUs share switches it maximizes the pairs that remain
// possible once the devices in use are free again. So a container without VFs does not take the last GPU of a
// switch whose VFs are all in use, if it can take one of two elsewhere.
type jointly struct {
	node   *world.Node
	keeps  bool
	pools  []pool
	best   []int64 // by switch and devices taken before: the best score
	take   []taking
	wanted taking
}

// pool is the devices of a switch; the last pool has the devices without a switch.
type pool struct {
	may   [2][]int // available devices
	free  [2]int   // free in all
	has   [2]int   // free or not
	given [2]int   // devices that the container has already
	pfs   int      // PFs of the available VFs
}

// Weights of the parts of a score, in descending order, with room for 64 GPUs and 8,000 VFs.
const (
	onePair     = 1 << 54
	oneLeft     = 1 << 46
	oneLater    = 1 << 38
	oneNear     = 1 << 32
	oneOwnPF    = 1 << 24
	unreachable = -1
)

func joint(n *world.Node) world.Prefer   { return (&jointly{node: n}).stepwise() }
func keeping(n *world.Node) world.Prefer { return (&jointly{node: n, keeps: true}).stepwise() }

func (j *jointly) stepwise() world.Prefer {
	return func(s *world.State, q world.Question, _ *rand.Rand) []int {
		chosen, _ := j.choose(s, q, q.Available, s.Offered(q.Kind.Other(), q))
		return chosen
	}
}

// wholeNode chooses within as few NUMA nodes as the best pairs allow.
func wholeNode(n *world.Node) world.Prefer {
	j := &jointly{node: n}
	return func(s *world.State, q world.Question, _ *rand.Rand) []int {
		masks := make([]hints.Mask, 0, 1<<len(n.NUMA))
		for m := hints.Mask(1); m < 1<<len(n.NUMA); m++ {
			masks = append(masks, m)
		}
		slices.SortFunc(masks, func(a, b hints.Mask) int {
			if a.Narrower(b) {
				return -1
			}
			return 1
		})
		best, chosen := int64(unreachable), q.Available
		for _, m := range masks {
			others := within(n, q.Kind.Other(), s.FreeDevices(q.Kind.Other()), m)
			mine, score := j.choose(s, q, within(n, q.Kind, q.Available, m), others)
			if score -= score % oneLeft; score > best {
				best, chosen = score, mine
			}
		}
		return chosen
	}
}

// within returns the devices on some NUMA nodes.
func within(n *world.Node, kind world.Kind, devices []int, m hints.Mask) []int {
	return slices.DeleteFunc(slices.Clone(devices), func(i int) bool {
		at := n.Devices[kind][i].NUMA
		return at >= 0 && m>>at&1 == 0
	})
}

// choose answers a question with devices of asked, if the other half can come from other. The score is -1 if
// there are too few devices.
func (j *jointly) choose(s *world.State, q world.Question, asked, other []int) ([]int, int64) {
	var may [2][]int
	may[q.Kind] = asked
	if len(q.Allocated[q.Kind.Other()]) == 0 {
		may[q.Kind.Other()] = other
	}
	j.fill(s, q, may)
	score := j.solve()
	if score == unreachable {
		return nil, score
	}
	return j.chosen(q.Kind), score
}

// fill sorts devices into pools.
func (j *jointly) fill(s *world.State, q world.Question, may [2][]int) {
	n := j.node
	j.pools = make([]pool, n.Switches+1)
	for _, kind := range world.Kinds {
		for i, has := range n.On[kind] {
			j.pools[i].free[kind], j.pools[i].has[kind] = s.FreeOn(kind, i), has
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
		j.pools[i].pfs = j.spread(j.pools[i].may[world.VF])
	}
	j.wanted = taking{q.Request.GPUs - len(q.Allocated[world.GPU]), q.Request.VFs - len(q.Allocated[world.VF])}
}

func (j *jointly) at(kind world.Kind, i int) int {
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
		pf := j.node.Devices[world.VF][i].PF
		on[pf] = append(on[pf], i)
	}
	turn := make(map[int]int, len(vfs)) // of each VF on its PF
	for _, list := range on {
		for t, i := range list {
			turn[i] = t
		}
	}
	size := func(i int) int { return len(on[j.node.Devices[world.VF][i].PF]) }
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
			for g := 0; g <= min(len(p.may[world.GPU]), w.gpus-gpus); g++ {
				for v := 0; v <= min(len(p.may[world.VF]), w.vfs-vfs); v++ {
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
	gpus, vfs := p.free[world.GPU]-g, p.free[world.VF]-v // remaining free devices
	g, v = g+p.given[world.GPU], v+p.given[world.VF]
	own := min(g, v, p.pfs+p.given[world.VF])
	score := int64(min(g, v))*onePair + int64(min(gpus, vfs))*oneLeft + int64(own)*oneOwnPF + even(vfs)
	if j.keeps {
		later := min(gpus, p.has[world.VF]) + min(vfs, p.has[world.GPU])
		return score + int64(later)*oneLater + int64(max(g-1, 0))*oneNear
	}
	return score + int64(g*g)*oneNear
}

// even is concave in the free VFs of a switch, so that the sum over all switches is largest if VFs are taken
// from the switches with the most free ones.
func even(free int) int64 { return int64(free * (4095 - free) / 2) }

// chosen follows the best score back to the devices of a kind.
func (j *jointly) chosen(kind world.Kind) []int {
	width := len(j.best) / (len(j.pools) + 1)
	at := width - 1
	var devices []int
	for i := len(j.pools) - 1; i >= 0; i-- {
		t := j.take[(i+1)*width+at]
		at -= t.gpus*(j.wanted.vfs+1) + t.vfs
		n := t.gpus
		if kind == world.VF {
			n = t.vfs
		}
		devices = append(devices, j.pools[i].may[kind][:n]...)
	}
	return devices
}
