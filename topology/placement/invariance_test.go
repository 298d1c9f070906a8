// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/test/scale"
	"github.com/tandem-k8s/tandem/topology"
)

// forRandomRequests calls f with made-up machines and requests.
func forRandomRequests(
	t *testing.T, worlds int, f func(t *testing.T, r *rand.Rand, w *world, tree *topology.Tree, q Request),
) {
	t.Helper()
	for seed := range uint64(scale.Rounds(worlds)) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := randomWorld(r, 24, 40)
		tree := w.tree(t, same)
		for range 4 {
			f(t, r, w, tree, w.request(r, r.IntN(len(w.gpus)+1), r.IntN(len(w.vfs)+1)))
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func mustChoose(t *testing.T, tree *topology.Tree, q Request) Choice {
	t.Helper()
	c, err := Choose(tree, q)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func shuffled[T any](r *rand.Rand, list []T) []T {
	list = slices.Clone(list)
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

func equalChoices(a, b Choice) bool {
	return slices.Equal(a.GPUs, b.GPUs) && slices.Equal(a.VFs, b.VFs) && slices.Equal(a.Pairs, b.Pairs) &&
		a.Left == b.Left && a.Optimal == b.Optimal && a.Reason == b.Reason
}

// TestOrderOfListsMeansNothing shuffles every list of a request and names some devices twice.
func TestOrderOfListsMeansNothing(t *testing.T) {
	forRandomRequests(t, 100, func(t *testing.T, r *rand.Rand, _ *world, tree *topology.Tree, q Request) {
		want := mustChoose(t, tree, q)
		wellFormed(t, q, want)
		again := func(list []Device) []Device {
			if list = shuffled(r, list); len(list) > 0 {
				list = append(list, list[0])
			}
			return list
		}
		for _, halves := range []*[]Half{&q.GPUs, &q.VFs} {
			*halves = shuffled(r, *halves)
			for i := range *halves {
				h := &(*halves)[i]
				h.Held, h.Free = again(h.Held), again(h.Free)
				h.Free = append(h.Free, h.Held...)
			}
		}
		q.Spare = Devices{again(q.Spare.GPUs), append(again(q.Spare.VFs), allFree(q.VFs)...)}
		q.Taken = Devices{
			append(again(q.Taken.GPUs), q.Spare.GPUs...), append(again(q.Taken.VFs), allFree(q.VFs)...),
		}
		q.Links = shuffled(r, q.Links)
		for i := range q.Links {
			if l := &q.Links[i]; r.IntN(2) == 0 {
				l.A, l.B = l.B, l.A
			}
		}
		if got := mustChoose(t, tree, q); !equalChoices(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

// renamed is the request on a machine whose buses have other numbers. IDs stay.
func renamed(q Request, rename func(topology.Address) topology.Address) Request {
	devices := func(list []Device) []Device {
		list = slices.Clone(list)
		for i := range list {
			list[i].Address = rename(list[i].Address)
		}
		return list
	}
	halves := func(list []Half) []Half {
		list = slices.Clone(list)
		for i := range list {
			list[i].Held, list[i].Free = devices(list[i].Held), devices(list[i].Free)
		}
		return list
	}
	q.GPUs, q.VFs = halves(q.GPUs), halves(q.VFs)
	q.Spare = Devices{devices(q.Spare.GPUs), devices(q.Spare.VFs)}
	q.Taken = Devices{devices(q.Taken.GPUs), devices(q.Taken.VFs)}
	q.Links = slices.Clone(q.Links)
	for i := range q.Links {
		q.Links[i].A, q.Links[i].B = rename(q.Links[i].A), rename(q.Links[i].B)
	}
	return q
}

// TestRenumberedBuses gives the buses other numbers: in the same order the very same devices are chosen, in
// another order a choice that is worth the same.
func TestRenumberedBuses(t *testing.T) {
	forRandomRequests(t, 60, func(t *testing.T, r *rand.Rand, w *world, tree *topology.Tree, q Request) {
		want := mustChoose(t, tree, q)
		up := func(a topology.Address) topology.Address {
			a.Domain, a.Bus = 2*a.Domain+5, a.Bus/2+a.Bus+3 // rises with the bus
			return a
		}
		got := mustChoose(t, w.tree(t, up), renamed(q, up))
		for i := range got.Pairs {
			if got.Pairs[i].GPU.ID != want.Pairs[i].GPU.ID || got.Pairs[i].VF.ID != want.Pairs[i].VF.ID {
				t.Errorf("got %+v, want %+v", got, want)
			}
		}
		buses := r.Perm(256)
		mix := func(a topology.Address) topology.Address {
			a.Domain, a.Bus = a.Domain^1, uint8(buses[a.Bus])
			return a
		}
		mixed, other := w.tree(t, mix), renamed(q, mix)
		got = mustChoose(t, mixed, other)
		before, after := newOracle(tree, q), newOracle(mixed, other)
		a, b := before.judge(want.GPUs, want.VFs, want.Pairs), after.judge(got.GPUs, got.VFs, got.Pairs)
		if a.compare(b) != 0 && got.Optimal && want.Optimal {
			t.Errorf("got %+v, want %+v", b, a)
		}
	})
}

// TestOneMoreDeviceIsNoWorse takes a free device away: pairs, degraded devices
// and pairs left do not get better by that.
func TestOneMoreDeviceIsNoWorse(t *testing.T) {
	forRandomRequests(t, 150, func(t *testing.T, r *rand.Rand, _ *world, tree *topology.Tree, q Request) {
		half := &q.GPUs[r.IntN(len(q.GPUs))]
		if r.IntN(2) == 0 {
			half = &q.VFs[r.IntN(len(q.VFs))]
		}
		if len(half.Free) == 0 || half.Count == len(half.Free)+len(half.Held) {
			return
		}
		o := newOracle(tree, q)
		with := mustChoose(t, tree, q)
		more := o.judge(with.GPUs, with.VFs, with.Pairs)
		half.Free = slices.Delete(slices.Clone(half.Free), 0, 1)
		without := mustChoose(t, tree, q)
		less := o.judge(without.GPUs, without.VFs, without.Pairs)
		c := cmp.Or(more.pairsOnly(less), cmp.Compare(more.ill, less.ill), cmp.Compare(less.left, more.left))
		if with.Optimal && c > 0 {
			t.Errorf("with one more %+v, without %+v", more, less)
		}
	})
}

// TestBeyondTheBounds lets the search run out of steps: the answer is well formed, is not called the best
// where it is not, and has most of the PIX pairs that there could be.
func TestBeyondTheBounds(t *testing.T) {
	pix, most, least := map[int]int{}, 0, map[int]int{0: 80, 30: 80, 600: 80, 2400: 85}
	forRandomRequests(t, 150, func(t *testing.T, _ *rand.Rand, _ *world, tree *topology.Tree, q Request) {
		want := mustChoose(t, tree, q)
		o := newOracle(tree, q)
		value := o.judge(want.GPUs, want.VFs, want.Pairs)
		most += value.levels[topology.PIX]
		for steps := range least {
			got := chooseWithin(t, tree, q, steps)
			v := o.judge(got.GPUs, got.VFs, got.Pairs)
			if want.Optimal && (v.compare(value) < 0 || got.Optimal && v.compare(value) != 0) {
				t.Errorf("%d steps: got %+v, best is %+v", steps, v, value)
			}
			pix[steps] += v.levels[topology.PIX]
		}
	})
	for steps, percent := range least {
		if pix[steps]*100 < most*percent {
			t.Errorf("%d steps: %d PIX pairs, want %d %% of %d", steps, pix[steps], percent, most)
		}
	}
	t.Logf("PIX pairs by steps: %v; best: %d", pix, most)
}

// chooseWithin chooses with fewer steps; the answer is well formed all the same.
func chooseWithin(t *testing.T, tree *topology.Tree, q Request, steps int) Choice {
	t.Helper()
	got, err := chooseInSteps(tree, q, steps)
	if err != nil || !wellFormed(t, q, got) {
		t.Fatalf("%d steps: %v", steps, err)
	}
	return got
}
