// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/topology"
)

func device(t testing.TB, id, address string) Device {
	t.Helper()
	a, err := topology.ParseAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	return Device{ID: id, Address: a}
}

func TestTooFew(t *testing.T) {
	free := []Device{
		device(t, "a", "0000:01:00.0"), device(t, "a", "0000:02:00.0"), device(t, "b", "0000:03:00.0"),
	}
	_, err := Choose(nil, Request{GPUs: []Half{{Count: 3, Held: free[:1], Free: free}}})
	if want := "choose 3 GPUs: 1 held and 1 free"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	_, err = Choose(nil, Request{VFs: []Half{{Count: 1}}})
	if want := "choose 1 VFs: 0 held and 0 free"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestHeldBeyondCount(t *testing.T) {
	held := []Device{device(t, "b", "0000:02:00.0"), device(t, "a", "0000:01:00.0")}
	for _, count := range []int{-1, 0, 1, 2} {
		c, err := Choose(nil, Request{GPUs: []Half{{Count: count, Held: held}}, VFs: []Half{{Count: -3}}})
		if err != nil || len(c.GPUs) != 2 || c.GPUs[0].ID != "a" || len(c.VFs) != 0 {
			t.Errorf("count %d: %+v, %v", count, c, err)
		}
	}
}

func TestNothing(t *testing.T) {
	c, err := Choose(nil, Request{GPUs: []Half{{Free: []Device{device(t, "a", "0000:01:00.0")}}}})
	if err != nil || len(c.GPUs) != 0 || !c.Optimal || c.Reason != "nothing asked for" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestNaturalOrder(t *testing.T) {
	want := strings.Fields("02 2 a a1 a01b a02 a2 a10 a10b b xcp_2 xcp_10 xcp_19 xcp_100 " +
		"xcp_99999999999999999998 xcp_99999999999999999999")
	got := slices.Clone(want)
	r := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		r.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		if slices.SortFunc(got, compareNatural); !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
}

// FuzzEqualsOracle compares with exhaustive search on whatever machine and request a seed makes.
func FuzzEqualsOracle(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, uint8(seed%5), uint8(seed%4))
	}
	f.Fuzz(func(t *testing.T, seed uint64, n, m uint8) {
		r := rand.New(rand.NewPCG(seed, 2))
		w := randomWorld(r, 7, 10)
		gpus, vfs := int(n)%(min(len(w.gpus), 5)+1), int(m)%(min(len(w.vfs), 5)+1)
		compareWithOracle(t, w.tree(t, same), w.request(r, gpus, vfs))
	})
}

// FuzzWeirdInput asks nonsense: it is answered, or refused for too few devices, and the order of the lists
// still means nothing.
func FuzzWeirdInput(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, int8(seed), int8(3-seed))
	}
	f.Fuzz(func(t *testing.T, seed uint64, n, m int8) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := randomWorld(r, 20, 30)
		tree := w.tree(t, same)
		some := func() (list []Device) {
			for range r.IntN(25) {
				d := Device{
					ID:      string(rune('a' + r.IntN(26))),
					Address: topology.Address{Bus: uint8(r.IntN(8)), Device: uint8(r.IntN(32)), Function: uint8(r.IntN(8))},
				}
				if all := slices.Concat(w.gpus, w.vfs); r.IntN(4) > 0 && len(all) > 0 {
					d = all[r.IntN(len(all))]
				}
				list = append(list, d)
			}
			return list
		}
		several := func(count int8) (halves []Half) {
			for i := range r.IntN(4) {
				halves = append(halves, Half{Count: int(count) >> i, Held: some(), Free: some()})
			}
			return halves
		}
		q := Request{
			GPUs:  several(n),
			VFs:   several(m),
			Links: w.links,
			Spare: Devices{some(), some()},
			Taken: Devices{some(), some()},
		}
		for range r.IntN(5) {
			q.Links = append(q.Links, topology.Link{
				A: topology.Address{Bus: uint8(r.IntN(8))}, Hops: r.IntN(9) - 4, Count: r.IntN(999) - 99,
			})
		}
		got, err := Choose(tree, q)
		if err == nil && (len(got.GPUs) < wanted(q.GPUs) || len(got.VFs) < wanted(q.VFs)) {
			t.Errorf("too few of %+v: %+v", q, got)
		}
		q.Spare.VFs = shuffled(r, q.Spare.VFs)
		for _, halves := range [][]Half{q.GPUs, q.VFs} {
			for i := range halves {
				halves[i].Held, halves[i].Free = shuffled(r, halves[i].Held), shuffled(r, halves[i].Free)
			}
		}
		if again, errAgain := Choose(tree, q); (err == nil) != (errAgain == nil) || !equalChoices(got, again) {
			t.Errorf("got %+v, %v, then %+v, %v", got, err, again, errAgain)
		}
	})
}

func wanted(halves []Half) int {
	sum := 0
	for _, h := range halves {
		sum += max(h.Count, 0)
	}
	return sum
}
