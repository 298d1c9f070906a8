// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"testing"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
)

// TestLess: a pod takes the room that is not left.
func TestLess(t *testing.T) {
	if got, want := (Room{1, 2, 4, 8}).Less(Room{0, 1, 3, 7}), (Room{1, 1, 1, 1}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestFit(t *testing.T) {
	all := model.PerNode{4, 4}
	kubelet := func(size int, free model.PerNode) (model.Mask, bool) {
		return model.Restricted.Nodes(model.Demand{Count: size, All: all, Free: free})
	}
	for _, c := range []struct {
		pairs model.PerNode
		want  Room
	}{
		{model.PerNode{4, 4}, Room{1, 2, 4, 8}},
		{model.PerNode{3, 4}, Room{0, 1, 3, 7}},
		{model.PerNode{3, 3}, Room{0, 0, 2, 6}},
		{nil, Room{}},
	} {
		if got := countFitting(c.pairs, kubelet); got != c.want {
			t.Errorf("%v: %v, want %v", c.pairs, got, c.want)
		}
	}
	asked := 0
	got := countFitting(model.PerNode{1 << 15}, func(int, model.PerNode) (model.Mask, bool) {
		asked++
		return 1, true
	})
	if want := (Room{mostRoom, mostRoom, mostRoom, mostRoom}); got != want || asked != len(sizes)*mostRoom {
		t.Errorf("of GPUs that are shared out: %v, asked %d times", got, asked)
	}
}
