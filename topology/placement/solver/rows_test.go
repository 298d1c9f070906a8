package solver

import "testing"

func TestConvex(t *testing.T) {
	for _, c := range []struct {
		vfs  []int
		far  []int64 // what they cost: first this
		load []int64 // then this
		want bool
	}{
		{[]int{4}, []int64{7}, []int64{0}, true},
		{[]int{0, 1, 2, 3}, []int64{0, 1, 2, 4}, []int64{9, 0, 0, 0}, true},
		{[]int{0, 1, 2}, []int64{0, 3, 4}, []int64{0, 0, 9}, false},
		{[]int{0, 1, 2}, []int64{0, 1, 2}, []int64{0, 5, 9}, false},
		{[]int{0, 1, 2}, []int64{0, 1, 3}, []int64{0, 5, 0}, true},
		{[]int{0, 2, 3}, []int64{0, 1, 2}, []int64{0, 0, 0}, false},
	} {
		var s Solver
		var r row
		for i, v := range c.vfs {
			s.entries = append(s.entries, entry{Counts: Counts{VFs: v}})
			r.entries = append(r.entries, int32(i))
			r.costs = append(r.costs, cost{termFar: c.far[i], termLoad: c.load[i]})
		}
		if got := s.convex(&r); got != c.want {
			t.Errorf("%+v: got %t", c, got)
		}
	}
}
