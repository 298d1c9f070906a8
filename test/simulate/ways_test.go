// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
)

// On an empty node with four switches per NUMA node the stock plugins choose two random subsets: n/4 of n
// pairs are on one switch, that is 25, 50 and 100 % if both halves have equally many devices per switch. With
// 8 VFs on each PF the VFs are drawn from 32, so that several can be on one switch.
func TestStockPairOnAnEmptyNode(t *testing.T) {
	node := presetNode(t, "A", 8)
	rng := newRand(1)
	prefer := ways(t, "stock")[0].Prefer(node)
	for _, c := range []struct {
		request   Request
		policy    model.Policy
		pix, full float64
	}{
		{Request{GPUs: 1, VFs: 1}, model.Restricted, 25, 25},
		{Request{GPUs: 2, VFs: 2}, model.Restricted, 44.4, 12.9},
		{Request{GPUs: 4, VFs: 4}, model.Restricted, 70.5, 11.4},
		{Request{GPUs: 8, VFs: 8}, model.BestEffort, 67.9, 0.4},
	} {
		const draws = 20_000
		pix, full := 0, 0
		for range draws {
			s := newState(node, Rules{Policy: c.policy})
			container, outcome := s.Admit(c.request, Kind(rng.IntN(2)), prefer, rng)
			if outcome != Admitted {
				t.Fatalf("%v: outcome %v", c.request, outcome)
			}
			n, _, _ := node.Pairs(container)
			pix += n
			if n == c.request.Pairs() {
				full++
			}
		}
		if got := percent(pix, draws*c.request.Pairs()); math.Abs(got-c.pix) > 1 {
			t.Errorf("%v: %.1f %% on one switch, want %.1f", c.request, got, c.pix)
		}
		if got := percent(full, draws); math.Abs(got-c.full) > 1 {
			t.Errorf("%v: %.1f %% fully paired, want %.1f", c.request, got, c.full)
		}
	}
}

func TestVendorKeepsGPUsTogether(t *testing.T) {
	v := machine.NewVendor(presetNode(t, "B", 1).Locality) // GPUs 0 1 | 2 3 | 4 5 | 6 7
	rng := newRand(1)
	for _, c := range []struct {
		name      string
		available []int
		size      int
		want      [][]int // any of them is right
	}{
		{"a switch", []int{0, 2, 3, 5}, 2, [][]int{{2, 3}}},
		{"either switch", []int{0, 1, 4, 5}, 2, [][]int{{0, 1}, {4, 5}}},
		{"one node", []int{0, 2, 4, 6}, 2, [][]int{{0, 2}, {4, 6}}},
		{"one, whichever", []int{1, 6}, 1, [][]int{{1}, {6}}},
		{"not of a whole switch", []int{0, 1, 2, 4, 5}, 3, [][]int{{0, 1, 2}}},
	} {
		for range 20 {
			got := slices.Sorted(slices.Values(v.Choose(c.available, c.size, rng)))
			if !slices.ContainsFunc(c.want, func(w []int) bool { return slices.Equal(w, got) }) {
				t.Errorf("%s: got %v, want one of %v", c.name, got, c.want)
			}
		}
	}
}

// The step-wise optimum is the reference for everything else, so it is itself compared with an exhaustive
// search.
func TestJointIsTheBestOfAll(t *testing.T) {
	rng := newRand(1)
	for range 3000 {
		node := presetNode(t, Presets()[rng.IntN(3)], 1+rng.IntN(2))
		s := newState(node, Rules{
			Policy: model.Policy([]model.Policy{model.Restricted, model.PolicyNone}[rng.IntN(2)]),
		})
		scatter(s, rng, 0.3+0.5*rng.Float64())
		r := Request{GPUs: rng.IntN(4), VFs: rng.IntN(4)}
		if r.GPUs+r.VFs == 0 || !s.Fits(r) {
			continue
		}
		mask, admitted := s.Affinity(r)
		if !admitted {
			continue
		}
		want := mostPairs(s, r, mask)
		container, _ := s.Admit(r, Kind(rng.IntN(2)), joint(node), rng)
		if got := worth(s, container); got != want {
			t.Fatalf("node %s, %v: %v, best %v", node.Name, r, got, want)
		}
	}
}

// mostPairs tries all sets of both kinds.
func mostPairs(s *State, r Request, mask model.Mask) (best [2]int) {
	best[0] = -1
	q := Question{Request: r, Mask: mask}
	machine.EachSet(s.Offered(GPU, q), r.GPUs, func(gpus []int) {
		machine.EachSet(s.Offered(VF, q), r.VFs, func(vfs []int) {
			c := Container{Request: r, Devices: [2][]int{gpus, vfs}}
			s.Take(c)
			if w := worth(s, c); slices.Compare(w[:], best[:]) > 0 {
				best = w
			}
			s.Release(c)
		})
	})
	return best
}

// worth returns a container's pairs on one switch, and the pairs that remain possible.
func worth(s *State, c Container) [2]int {
	pix, _, _ := s.Node.Pairs(c)
	return [2]int{pix, min(s.Free(GPU), s.Free(VF)) - s.Stranded()}
}

// Both know the whole request, so both make the most pairs: package placement and this package agree.
func TestTandemMakesAsManyPairs(t *testing.T) {
	rng := newRand(2)
	for range 1000 {
		node := presetNode(t, Presets()[rng.IntN(3)], 1+rng.IntN(3))
		policy := []model.Policy{model.Restricted, model.BestEffort, model.PolicyNone}[rng.IntN(3)]
		s := newState(node, Rules{
			Policy: policy, ExcludeTopology: policy == model.Restricted && rng.IntN(2) == 0,
		})
		scatter(s, rng, rng.Float64())
		r := Request{GPUs: 1 + rng.IntN(4), VFs: 1 + rng.IntN(4)}
		if r.GPUs != r.VFs || !s.Fits(r) {
			continue
		}
		first := Kind(rng.IntN(2))
		mine, outcome := s.Admit(r, first, tandemKnown(node), rng)
		if outcome != Admitted {
			continue
		}
		s.Release(mine)
		best, _ := s.Admit(r, first, joint(node), rng)
		got, _, _ := node.Pairs(mine)
		want, _, _ := node.Pairs(best)
		if got != want && !(s.Rules.ExcludeTopology && first == VF) { // its NUMA node must be guessed
			t.Fatalf("node %s, %s, %v, %v first: %d pairs, best %d", node.Name, policy, r, first, got, want)
		}
	}
}

func TestPairsCountNoVFTwice(t *testing.T) {
	node := presetNode(t, "C", 2) // each switch has GPUs 0 1, and VFs 0 1 of one PF and 2 3 of the other
	for _, c := range []struct {
		gpus, vfs          []int
		pix, own, sameNode int
	}{
		{[]int{0, 1}, []int{0, 2}, 2, 2, 2},
		{[]int{0, 1}, []int{0, 1}, 2, 1, 2},
		{[]int{0, 1}, []int{0, 4}, 1, 1, 2},
		{[]int{0, 2}, []int{0, 1}, 1, 1, 2},
		{[]int{0, 4}, []int{0, 1}, 1, 1, 1},
		{[]int{0}, []int{15}, 0, 0, 0},
	} {
		pix, own, sameNode := node.Pairs(Container{Devices: [2][]int{c.gpus, c.vfs}})
		if pix != c.pix || own != c.own || sameNode != c.sameNode {
			t.Errorf("%v %v: %d %d %d", c.gpus, c.vfs, pix, own, sameNode)
		}
	}
}

func BenchmarkAdmit(b *testing.B) {
	for _, w := range Ways() {
		b.Run(w.Name, func(b *testing.B) {
			node := presetNode(b, "A", 8)
			s, rng, prefer := newState(node, Rules{Policy: model.Restricted}), rand.New(rand.NewPCG(1, 1)),
				w.Prefer(node)
			for b.Loop() {
				c, _ := s.Admit(Request{GPUs: 2, VFs: 2}, Kind(rng.IntN(2)), prefer, rng)
				s.Release(c)
			}
		})
	}
}
