// SPDX-License-Identifier: Apache-2.0

package rank

import (
	"testing"

	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// Each offer is better than the next one.
func TestCompare(t *testing.T) {
	offers := []Offer{
		{Pairs: 4, Stranded: 3, Lost: Room{1, 1, 2, 4}, Free: 9},
		{Pairs: 3, Stranded: 0, Lost: Room{0, 0, 1, 2}, Free: 1},
		{Pairs: 3, Stranded: 0, Lost: Room{0, 0, 1, 2}, Free: 2},
		{Pairs: 3, Stranded: 0, Lost: Room{0, 1, 1, 2}, Free: 1},
		{Pairs: 3, Stranded: 0, Lost: Room{1, 0, 0, 0}, Free: 1},
		{Pairs: 3, Stranded: 1, Lost: Room{}, Free: 0},
		{Pairs: 0},
	}
	for i, a := range offers {
		for j, b := range offers {
			if got, want := Compare(a, b), j-i; got*want < 0 || (got == 0) != (want == 0) {
				t.Errorf("%+v, %+v: %d", a, b, got)
			}
		}
	}
}

// left are free devices after a pod.
type left struct{}

func (left) Stranded() int { return 2 }
func (left) Room() Room    { return Room{0, 1, 3, 7} }
func (left) Free() int     { return 9 }

// TestNewOffer: an offer loses the room that the pod takes.
func TestNewOffer(t *testing.T) {
	want := Offer{Pairs: 1, Stranded: 2, Lost: Room{1, 1, 1, 1}, Free: 9}
	if got := NewOffer(1, Room{1, 2, 4, 8}, left{}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestFit(t *testing.T) {
	all := hints.PerNode{4, 4}
	kubelet := func(size int, free hints.PerNode) (hints.Mask, bool) {
		return hints.Restricted.Nodes(hints.Demand{Count: size, All: all, Free: free})
	}
	for _, c := range []struct {
		pairs hints.PerNode
		want  Room
	}{
		{hints.PerNode{4, 4}, Room{1, 2, 4, 8}},
		{hints.PerNode{3, 4}, Room{0, 1, 3, 7}},
		{hints.PerNode{3, 3}, Room{0, 0, 2, 6}},
		{nil, Room{}},
	} {
		if got := Fit(c.pairs, kubelet); got != c.want {
			t.Errorf("%v: %v, want %v", c.pairs, got, c.want)
		}
	}
	asked := 0
	got := Fit(hints.PerNode{1 << 15}, func(int, hints.PerNode) (hints.Mask, bool) { asked++; return 1, true })
	if want := (Room{mostRoom, mostRoom, mostRoom, mostRoom}); got != want || asked != len(Sizes)*mostRoom {
		t.Errorf("of GPUs that are shared out: %v, asked %d times", got, asked)
	}
}
