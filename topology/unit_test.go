// SPDX-License-Identifier: Apache-2.0

package topology

import "testing"

func TestOverlaps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"0000:81:00.0", "0000:81:00.0", true},
		{"0000:81:00.0", "0000:81:00.1", false},
		{"0000:81:00.0", "0000:81:00.0/7-0", true},
		{"0000:81:00.0/7-0", "0000:81:00.0/8-0", false},
		{"0000:81:00.0", "0000:81:00.0/3", false}, // a partition, and the function of another
		{"GPU-1", "GPU-10", false},
	} {
		a, b := Unit{Name: c.a}, Unit{Name: c.b, Shared: true}
		if a.Overlaps(b) != c.want || b.Overlaps(a) != c.want {
			t.Errorf("%s and %s overlap: want %t", c.a, c.b, c.want)
		}
	}
}

func TestUnitOfID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]Unit{
		"0000:0c:00.1":    {"0000:0c:00.1", false},
		"0000:0c:00.0::3": {"0000:0c:00.0", true},
		"GPU-1::0":        {"GPU-1", true},
		"GPU-1":           {"GPU-1", false},
		"17":              {"17", false},
	} {
		if got := UnitOfID(id); got != want {
			t.Errorf("%s is unit %v, want %v", id, got, want)
		}
	}
}
