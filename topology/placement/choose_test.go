// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/test/scale"
	"github.com/tandem-k8s/tandem/topology"
)

var worlds = flag.Int("worlds", 1000, "how many made-up machines TestEqualsOracle asks, five requests each")

// TestEqualsOracle compares with exhaustive search on made-up machines.
func TestEqualsOracle(t *testing.T) {
	cases := 0
	seeds := []uint64{
		7340, // VFs of several resources beside two C2C complexes
		6428, // VFs of several resources on two NICs with two PFs
	}
	for seed := range uint64(scale.Rounds(*worlds)) {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 0))
		w := randomWorld(r, 7, 10)
		tree := w.tree(t, same)
		for range 5 {
			n, m := r.IntN(min(len(w.gpus), 5)+1), r.IntN(min(len(w.vfs), 5)+1)
			if !compareWithOracle(t, tree, w.request(r, n, m)) {
				t.Fatalf("seed %d", seed)
			}
			cases++
		}
	}
	t.Logf("%d cases", cases)
}

func compareWithOracle(t *testing.T, tree *topology.Tree, r Request) bool {
	t.Helper()
	got, err := Choose(tree, r)
	if err != nil {
		t.Errorf("%v: %+v", err, r)
		return false
	}
	o := newOracle(tree, r)
	want, gpus, vfs := o.best()
	value := o.judge(got.GPUs, got.VFs, got.Pairs)
	isBeyondBounds := min(len(r.GPUs), len(r.VFs)) > 2 // the answer to one of 100,000 requests is not proven
	if value.compare(want) != 0 || !got.Optimal && !isBeyondBounds {
		t.Errorf("%d+%d: got %+v (%v)\nwant %+v\ngot  %v\n     %v\nwant %v\n     %v",
			len(gpus), len(vfs), value, got.Reason, want,
			got.GPUs, got.VFs, gpus, vfs)
		return false
	}
	if !wellFormed(t, r, got) {
		return false
	}
	if !got.Optimal { // as good, and other devices are possible
		return true
	}
	slices.SortFunc(got.VFs, byAddress)
	if want := o.sameIndex(got.VFs); !slices.Equal(got.VFs, want) {
		t.Errorf("of %+v\ngot  %v\nwant %v", r.VFs, got.VFs, want)
		return false
	}
	if n, m := len(gpus), len(vfs); n == 0 || m == 0 || max(n, m)%min(n, m) == 0 {
		vfs = o.sameIndex(vfs)
		if !slices.Equal(got.GPUs, gpus) || !slices.Equal(got.VFs, vfs) {
			t.Errorf("%d+%d: %+v\ngot  %v\n     %v\nwant %v\n     %v", n, m, value, got.GPUs, got.VFs, gpus, vfs)
			return false
		}
	}
	return true
}

// wellFormed checks what Choose promises of any choice.
func wellFormed(t *testing.T, r Request, c Choice) bool {
	t.Helper()
	ok := true
	check := func(condition bool, what string) {
		t.Helper()
		if !condition {
			t.Errorf("%s: %+v", what, c)
			ok = false
		}
	}
	for _, kind := range []struct {
		halves []Half
		taken  []Device
	}{{r.GPUs, c.GPUs}, {r.VFs, c.VFs}} {
		wanted := 0
		for _, h := range kind.halves {
			of := 0
			for _, d := range kind.taken {
				if slices.Contains(h.Held, d) || slices.Contains(h.Free, d) {
					of++
				}
			}
			check(of == h.Count, "as many of a resource as wanted")
			for _, d := range h.Held {
				check(slices.Contains(kind.taken, d), "everything held is kept")
			}
			wanted += h.Count
		}
		check(len(kind.taken) == wanted, "nothing else than held and free")
		for i, d := range kind.taken {
			check(!slices.Contains(kind.taken[:i], d), "no device twice")
		}
	}
	check(slices.IsSortedFunc(c.GPUs, byAddress), "GPUs in order")
	if len(c.GPUs) == 0 || len(c.VFs) == 0 {
		check(len(c.Pairs) == 0, "no pairs")
		return ok
	}
	check(len(c.Pairs) == max(len(c.GPUs), len(c.VFs)), "as many pairs as the larger half")
	perGPU, perVF := map[Device]int{}, map[Device]int{}
	var vfs []Device
	for i, p := range c.Pairs {
		if i < len(c.GPUs) {
			check(p.GPU == c.GPUs[i], "i-th pair has i-th GPU")
		}
		if perVF[p.VF]++; perVF[p.VF] == 1 {
			vfs = append(vfs, p.VF)
		}
		perGPU[p.GPU]++
	}
	check(slices.Equal(vfs, c.VFs), "VFs in the order of the pairs")
	small, each := perGPU, len(c.VFs)/len(c.GPUs)
	if len(c.GPUs) > len(c.VFs) {
		small, each = perVF, len(c.GPUs)/len(c.VFs)
	}
	check(len(small) == min(len(c.GPUs), len(c.VFs)), "every device has a partner")
	for _, n := range small {
		check(n == each || n == each+1, "equal shares")
	}
	return ok
}
