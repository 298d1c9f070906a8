// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

func (p Palette) colours() map[string]int {
	all := map[string]int{}
	for owner, mark := range p {
		all[owner] = mark.colour
	}
	return all
}

// An owner keeps its colour while others come and go; up to the number of colours, each has its own.
func TestPalette(t *testing.T) {
	p := Palette{}
	p.assignMarks([]string{"b", "c"}, nil)
	p.assignMarks([]string{"a", "b", "c"}, nil)
	if diff := cmp.Diff(map[string]int{"b": 0, "c": 1, "a": 2}, p.colours()); diff != "" {
		t.Errorf("one more (-want +got):\n%s", diff)
	}
	p.assignMarks([]string{"a", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m"}, nil)
	used := map[int]bool{}
	for _, colour := range p.colours() {
		used[colour] = true
	}
	if len(used) != colours || p["a"].colour != 2 || p["c"].colour != 1 || len(p) != colours {
		t.Errorf("one gone, nine new: %v", p)
	}
}

// Neighbours always differ, even with far more owners than colours, and if an existing owner becomes a
// neighbour.
func TestNeighbours(t *testing.T) {
	n := draw(t, "oci-mi300x-derived", 8, func(a topology.Address) (State, string) {
		return Allocated, fmt.Sprintf("team/pod-%s/worker", a)
	})
	n.Palette = Palette{}
	check := func() {
		t.Helper()
		root := n.buildTree()
		_, palette := n.markOwners(root)
		for owner, near := range findNeighbours(root) {
			for other, is := range near {
				if is && palette[owner].colour == palette[other].colour {
					t.Errorf("%s and %s are alike", owner, other)
				}
			}
		}
		initials := map[string]string{}
		for owner, mark := range palette {
			if other := initials[mark.initials]; other != "" {
				t.Errorf("%s and %s are both %s", owner, other, mark.initials)
			}
			initials[mark.initials] = owner
		}
		if len(palette) <= colours {
			t.Errorf("%d owners are too few to show it", len(palette))
		}
	}
	check()
	first, last := &n.Cards[0], &n.Cards[len(n.Cards)-1]
	first.Devices[0].Owner = last.Devices[0].Owner
	check()
	slices.Reverse(n.Cards)
	check()
}

func TestInitials(t *testing.T) {
	p := Palette{}
	for _, c := range []struct{ owner, want string }{
		{"team/train-0/worker", "t0"},
		{"team/train-12/worker", "t12"},
		{"team/tuner-0/worker", "t1"},
		{"team/llama-7d9f8c5b4-x2kqz/model", "lx"},
		{"other/llama-7d9f8c5b4-x9abc/model", "lx9"},
		{"serve/model", "se"},
		{"pair 1, PIX", "p1"},
		{"x", "x"},
		{"y/x/c", "x1"},
		{"///", "?"},
	} {
		got := p.newInitials(c.owner)
		if got != c.want {
			t.Errorf("%q has the initials %q, want %q", c.owner, got, c.want)
		}
		p[c.owner] = mark{initials: got}
	}
}

// Boxes break into as few rows as possible, of about equal width.
func TestEven(t *testing.T) {
	for _, c := range []struct {
		widths []int
		width  int
		want   []int // boxes in each row
	}{
		{[]int{300, 300, 300, 300}, 1000, []int{2, 2}},
		{[]int{300, 300, 300, 300, 300}, 1300, []int{3, 2}},
		{[]int{278, 586, 278, 278}, 1208, []int{2, 2}},
		{[]int{100, 100}, 210, []int{2}},
		{[]int{500, 100}, 90, []int{1, 1}},
		{nil, 100, nil},
	} {
		var boxes []*box
		for _, w := range c.widths {
			boxes = append(boxes, &box{width: w})
		}
		var got []int
		for _, row := range evenRows(boxes, c.width) {
			got = append(got, len(row))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%v in %d (-want +got):\n%s", c.widths, c.width, diff)
		}
	}
}

// Four NUMA nodes are drawn two by two, and all switches of a machine have a number.
func TestNUMANodes(t *testing.T) {
	n := draw(t, "amd-mi250-16gcd-8nic", 1, unknown)
	root := n.buildTree()
	root.placeBoxes(Wide)
	if len(root.boxes) != 4 || root.boxes[0].y != root.boxes[1].y || root.boxes[2].y != root.boxes[3].y ||
		root.boxes[0].x != root.boxes[2].x || root.boxes[0].width != root.boxes[3].width {
		t.Errorf("NUMA nodes: %+v", root.boxes)
	}
	none := []string{"nv-h200-vm-flat", "nv-4xrtx6000ada-2cx7", "amd-mi300x-cpx-kfd",
		"nv-gb200-derived", "nv-gb300-aks-derived", "nv-vera-derived"}
	for _, name := range machines.Names() {
		switches := draw(t, name, 0, unknown).buildTree().numberSwitches(0)
		if (switches == 0) != slices.Contains(none, name) {
			t.Errorf("%s has %d switches", name, switches)
		}
	}
}
