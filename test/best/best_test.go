// SPDX-License-Identifier: Apache-2.0

package best

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/topology"
)

// level answers from a table: GPU i is on bus i, VF j on bus j.
func level(table [][]topology.Level) Level {
	return func(gpu, vf topology.Address) topology.Level { return table[gpu.Bus][vf.Bus] }
}

func buses(numbers ...uint8) []topology.Address {
	var addresses []topology.Address
	for _, n := range numbers {
		addresses = append(addresses, topology.Address{Bus: n})
	}
	return addresses
}

func TestReachable(t *testing.T) {
	const x, b, n = topology.PIX, topology.PXB, topology.NODE
	for _, c := range []struct {
		name      string
		table     [][]topology.Level
		gpus, vfs Side
		want      string
	}{
		{
			name:  "the nearest of all",
			table: [][]topology.Level{{n, n}, {n, x}},
			gpus:  Side{Free: buses(0, 1), Want: 1}, vfs: Side{Free: buses(0, 1), Want: 1},
			want: "1 PIX",
		}, {
			name:  "taking the nearest first would be wrong",
			table: [][]topology.Level{{x, x}, {x, n}},
			gpus:  Of(buses(0, 1)), vfs: Of(buses(0, 1)),
			want: "2 PIX",
		}, {
			name:  "one PIX is worth more than two PXB",
			table: [][]topology.Level{{x, b}, {b, n}},
			gpus:  Of(buses(0, 1)), vfs: Of(buses(0, 1)),
			want: "1 PIX + 1 NODE",
		}, {
			name:  "a held GPU has to be used",
			table: [][]topology.Level{{n, n}, {n, x}},
			gpus:  Side{Held: buses(0), Free: buses(1), Want: 1}, vfs: Side{Free: buses(0, 1), Want: 1},
			want: "1 NODE",
		}, {
			name:  "a held GPU may go without partner when there are fewer VFs",
			table: [][]topology.Level{{n, n}, {n, x}},
			gpus:  Side{Held: buses(0), Free: buses(1), Want: 2}, vfs: Side{Free: buses(0, 1), Want: 1},
			want: "1 PIX",
		}, {
			name:  "two partitions of one card",
			table: [][]topology.Level{{x, x}},
			gpus:  Of(buses(0, 0)), vfs: Of(buses(0, 1)),
			want: "2 PIX",
		}, {
			name:  "GPUs alone",
			table: [][]topology.Level{{}},
			gpus:  Of(buses(0)),
			want:  "none",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Reachable(c.gpus, c.vfs, level(c.table))
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestReachableRefusesImpossibleRequests(t *testing.T) {
	for name, side := range map[string]Side{
		"too few":       {Free: buses(0), Want: 2},
		"too many held": {Held: buses(0, 1), Want: 1},
		"too many":      {Free: make([]topology.Address, 300), Want: 300},
	} {
		if got, err := Reachable(side, Side{}, level(nil)); err == nil {
			t.Errorf("%s: got %v and no error", name, got)
		}
	}
}

// Whatever the distances, the request and the devices held already: nothing that can be listed is better.
func TestReachableEqualsExhaustiveSearch(t *testing.T) {
	const seed, cases = 1, 3000
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range cases {
		table := randomTable(random, 4, 5)
		gpus, vfs := randomSide(random, len(table)), randomSide(random, len(table[0]))
		got, err := Reachable(gpus, vfs, level(table))
		if err != nil {
			t.Fatal(err)
		}
		if want := exhaustive(gpus, vfs, level(table)); got != want {
			t.Fatalf("seed %d, case %d: distances %v, GPUs %v, VFs %v: got %v, want %v",
				seed, i, table, gpus, vfs, got, want)
		}
	}
}

func randomTable(random *rand.Rand, gpus, vfs int) [][]topology.Level {
	table := make([][]topology.Level, gpus)
	for g := range table {
		for range vfs {
			table[g] = append(table[g], topology.Level(random.IntN(topology.Levels)))
		}
	}
	return table
}

func randomSide(random *rand.Rand, devices int) Side {
	var s Side
	for _, n := range random.Perm(devices) {
		switch random.IntN(4) {
		case 0:
			s.Held = append(s.Held, buses(uint8(n))...)
		case 1: // in use elsewhere
		default:
			s.Free = append(s.Free, buses(uint8(n))...)
		}
	}
	s.Want = len(s.Held) + random.IntN(len(s.Free)+1)
	return s
}

// exhaustive tries every choice of devices and every order of them.
func exhaustive(gpus, vfs Side, level Level) Pairs {
	var best *Pairs
	for g := range choices(gpus) {
		for v := range choices(vfs) {
			if pairs := inOrder(g, v, level); best == nil || pairs.Compare(*best) < 0 {
				best = &pairs
			}
		}
	}
	return *best
}

// inOrder counts the pairs of the first GPU with the first VF and so on.
func inOrder(gpus, vfs []topology.Address, level Level) Pairs {
	var pairs Pairs
	for i := range min(len(gpus), len(vfs)) {
		pairs[level(gpus[i], vfs[i])]++
	}
	return pairs
}

// choices yields every choice of devices in every order.
func choices(s Side) func(yield func([]topology.Address) bool) {
	devices := slices.Concat(s.Held, s.Free)
	return func(yield func([]topology.Address) bool) {
		permute(devices, 0, func(order []topology.Address) bool {
			for _, held := range s.Held {
				if !slices.Contains(order[:s.Want], held) {
					return true
				}
			}
			return yield(order[:s.Want])
		})
	}
}

// permute yields every order of the devices from position first on; false means stop.
func permute(devices []topology.Address, first int, yield func([]topology.Address) bool) bool {
	if first == len(devices) {
		return yield(devices)
	}
	for i := first; i < len(devices); i++ {
		devices[first], devices[i] = devices[i], devices[first]
		more := permute(devices, first+1, yield)
		devices[first], devices[i] = devices[i], devices[first]
		if !more {
			return false
		}
	}
	return true
}
