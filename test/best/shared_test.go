// SPDX-License-Identifier: Apache-2.0

package best

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/topology"
)

// TestShared: the devices of the smaller half have equal shares of the larger one.
func TestShared(t *testing.T) {
	const x, n = topology.PIX, topology.NODE
	for _, c := range []struct {
		name      string
		table     [][]topology.Level
		gpus, vfs Side
		want      string
	}{
		{"two VFs on the switch of one GPU", [][]topology.Level{{x, n, n}, {n, x, x}},
			Side{Free: buses(0, 1), Want: 1}, Side{Free: buses(0, 1, 2), Want: 2}, "2 PIX"},
		{"no GPU has a third VF", [][]topology.Level{{x, x, x, n}, {n, n, n, x}},
			Of(buses(0, 1)), Of(buses(0, 1, 2, 3)), "3 PIX + 1 NODE"},
		{"two GPUs with one VF", [][]topology.Level{{x, n}, {n, n}, {n, x}},
			Side{Held: buses(1), Free: buses(0, 2), Want: 2}, Side{Free: buses(0, 1), Want: 1}, "1 PIX + 1 NODE"},
		{"equal halves", [][]topology.Level{{n, n}, {n, x}},
			Side{Free: buses(0, 1), Want: 1}, Side{Free: buses(0, 1), Want: 1}, "1 PIX"},
	} {
		if got, err := Shared(c.gpus, c.vfs, level(c.table)); err != nil || got.String() != c.want {
			t.Errorf("%s: got %v, %v; want %s", c.name, got, err, c.want)
		}
	}
}

// TestSharedTriesAll compares with all choices and all assignments.
func TestSharedTriesAll(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	for range 500 {
		table := make([][]topology.Level, 1+random.IntN(4))
		for i := range table {
			for range 4 {
				table[i] = append(table[i], topology.Level(random.IntN(3)))
			}
		}
		gpus := Side{Free: buses(0, 1, 2, 3)[:len(table)], Want: 1 + random.IntN(len(table))}
		vfs := Side{Held: buses(0)[:random.IntN(2)], Want: 1 + random.IntN(4)}
		vfs.Free = buses(0, 1, 2, 3)[len(vfs.Held):]
		if got, err := Shared(gpus, vfs, level(table)); err != nil || got != assigned(table, gpus, vfs) {
			t.Fatalf("%v, %+v, %+v: got %v, %v; want %v", table, gpus, vfs, got, err, assigned(table, gpus, vfs))
		}
	}
}

// assigned tries all lists of pairs in which all devices have their shares.
func assigned(table [][]topology.Level, gpus, vfs Side) (best Pairs) {
	count := max(gpus.Want, vfs.Want)
	fair := func(of, all int, shares []int) bool {
		have := slices.DeleteFunc(slices.Clone(shares), func(n int) bool { return n == 0 })
		return len(have) == of && slices.Min(have) >= all/of && slices.Max(have) <= (all+of-1)/of
	}
	var pairs Pairs
	perGPU, perVF := make([]int, len(table)), make([]int, 4)
	var add func(from, left int)
	add = func(from, left int) {
		if left == 0 {
			isHeld := len(vfs.Held) == 0 || perVF[0] > 0
			if isHeld && fair(gpus.Want, count, perGPU) && fair(vfs.Want, count, perVF) && pairs.Compare(best) < 0 {
				best = pairs
			}
			return
		}
		for pair := from; pair < len(table)*4; pair++ {
			g, v := pair/4, pair%4
			pairs[table[g][v]]++
			perGPU[g]++
			perVF[v]++
			add(pair+1, left-1)
			pairs[table[g][v]]--
			perGPU[g]--
			perVF[v]--
		}
	}
	add(0, count)
	return best
}
