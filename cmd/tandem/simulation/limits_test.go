// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/locality"
	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// event is the arrival of a container at a NUMA node, or the number of a departing one.
type event struct {
	request world.Request
	counts  bool
	leaves  int // 0 for none; the number of the container, from 1
}

// randomEvents returns a history that fits on two GPUs and one VF on each of two switches, for any choice.
func randomEvents(seed uint64) []event {
	rng := newRand(seed)
	var events []event
	var here []int
	requests := map[int]world.Request{}
	free, next := world.Request{GPUs: 4, VFs: 2}, 1
	for range 11 {
		r := []world.Request{
			{GPUs: 1, VFs: 1},
			{GPUs: 2, VFs: 2},
			{GPUs: 1, VFs: 0},
			{GPUs: 2, VFs: 0},
			{GPUs: 0, VFs: 1},
			{GPUs: 2, VFs: 1},
		}[rng.IntN(6)]
		if r.GPUs <= free.GPUs && r.VFs <= free.VFs && rng.IntN(3) > 0 {
			events = append(events, event{request: r, counts: rng.IntN(4) > 0})
			free = world.Request{GPUs: free.GPUs - r.GPUs, VFs: free.VFs - r.VFs}
			here, requests[next] = append(here, next), r
			next++
		} else if len(here) > 0 {
			i := rng.IntN(len(here))
			r := requests[here[i]]
			free = world.Request{GPUs: free.GPUs + r.GPUs, VFs: free.VFs + r.VFs}
			events = append(events, event{leaves: here[i]})
			here = slices.Delete(here, i, i+1)
		}
	}
	return events
}

func TestBoundIsTheBestOfAllChoices(t *testing.T) {
	node := presetNode(t, "B", 1)
	for seed := range uint64(80) {
		events := randomEvents(seed)
		b := newBound(node)
		s := world.NewState(node, world.Rules{Policy: hints.Restricted})
		number, asked := 0, 0
		var containers []world.Container
		rng := newRand(seed)
		for _, e := range events {
			if e.leaves > 0 {
				s.Release(containers[e.leaves-1])
				b.release(e.leaves)
				continue
			}
			number++
			before := s.Numbers()
			c, _ := s.Admit(e.request, world.GPU, func(s *world.State, q world.Question, _ *rand.Rand) []int {
				return q.Available[:q.Size]
			}, rng)
			b.admit(number, c, &before, 1, e.counts)
			containers = append(containers, c)
			if e.counts {
				asked += e.request.Pairs()
			}
		}
		most := tryAll(world.NewState(node, world.Rules{Policy: hints.Restricted}), events, nil)
		if got, want := b.share(), percent(most, asked); got != want && asked > 0 {
			t.Fatalf("seed %d: %.2f %%, by trying everything %.2f %%", seed, got, want)
		}
	}
}

// tryAll returns the most counted pairs by trying every choice on the first NUMA node.
func tryAll(s *world.State, events []event, containers []world.Container) int {
	for i, e := range events {
		if e.leaves == 0 {
			best := 0
			q := world.Question{Request: e.request, Mask: 1}
			locality.EachSet(s.Offered(world.GPU, q), e.request.GPUs, func(gpus []int) {
				locality.EachSet(s.Offered(world.VF, q), e.request.VFs, func(vfs []int) {
					c := world.Container{Devices: [2][]int{slices.Clone(gpus), slices.Clone(vfs)}}
					pairs, _, _ := s.Node.Pairs(c)
					if !e.counts {
						pairs = 0
					}
					s.Take(c)
					best = max(best, pairs+tryAll(s, events[i+1:], append(slices.Clone(containers), c)))
					s.Release(c)
				})
			})
			for _, done := range slices.Backward(events[:i]) {
				s.Take(containers[done.leaves-1])
			}
			return best
		}
		s.Release(containers[e.leaves-1])
	}
	for _, done := range slices.Backward(events) {
		s.Take(containers[done.leaves-1])
	}
	return 0
}

func TestLikeHoldingsAreOne(t *testing.T) {
	for _, name := range world.Presets() {
		o := newOutlook(presetNode(t, name, 1), mixOf(t, world.DefaultMix), 6)
		rng := newRand(1)
		for range 500 {
			var h holding
			for i := range o.symmetries[0] {
				h[i] = byte(rng.IntN(4))
			}
			var other holding
			for to, from := range o.symmetries[rng.IntN(len(o.symmetries))] {
				if h[from] > 0 {
					other[to] = 10 - h[from]
				}
			}
			if o.alike(h) != o.alike(other) {
				t.Fatalf("node %s: %v and %v are alike", name, h, other)
			}
		}
	}
	if o := newOutlook(presetNode(t, "A", 8), mixOf(t, world.DefaultMix), 6); o != nil {
		t.Error("an outlook for 36 devices on a NUMA node")
	}
}

// On node A the long-term optimum equals the step-wise optimum; with two GPUs per VF it does not.
func TestLookingAhead(t *testing.T) {
	for _, c := range []struct {
		node  string
		least float64 // gain, points
		most  float64
	}{{"A", -0.5, 0.5}, {"B", 2, 7}, {"C", 0, 2}} {
		config := small(t, c.node, 1)
		config.Ways, config.Seeds, config.Arrivals = ways(t, "joint", "keep", "ahead"), 16, 400
		l := run(t, config).Loads[0]
		best, keep := figuresOf(t, l, "ahead").PIX.Mean, figuresOf(t, l, "keep").PIX.Mean
		step := figuresOf(t, l, "joint").PIX.Mean
		if gain := best - step; gain < c.least || gain > c.most {
			t.Errorf("node %s: %.2f looking ahead, %.2f step by step", c.node, best, step)
		}
		if keep > best+0.3 || keep < step-0.3 {
			t.Errorf("node %s: %.2f with partners kept, %.2f step by step, %.2f looking ahead",
				c.node, keep, step, best)
		}
	}
}

func TestValuesAreOfTheBestPlan(t *testing.T) {
	o := newOutlook(presetNode(t, "B", 1), mixOf(t, "1+0,1+1"), 3)
	worth := func(holders ...byte) float64 { // of GPU GPU VF on the first switch
		var h holding
		copy(h[:], holders)
		v, ok := o.values[o.alike(renumbered(h))]
		if !ok {
			t.Errorf("%v has no value", holders)
		}
		return v
	}
	if v := worth(); v != 0 {
		t.Errorf("the empty node is worth %g", v)
	}
	one, both, pair := worth(1), worth(1, 2), worth(1, 0, 1)
	if !(0 > one && one > both && one > pair) {
		t.Errorf("one GPU of two taken: %g, both: %g, a pair: %g", one, both, pair)
	}
}
