// SPDX-License-Identifier: Apache-2.0

package topology

import "testing"

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

func TestExcludes(t *testing.T) {
	t.Parallel()
	function := Address{Bus: 0x81}
	whole, part := NewUnit(function, "", false), NewUnit(function, "7-0", false)
	replica := NewUnit(function, "", true)
	for _, c := range []struct {
		a, b Unit
		want bool
	}{
		{whole, whole, true}, {whole, replica, true}, {replica, whole, true}, {replica, replica, false},
		{part, part, true}, {part, whole, false}, {part, NewUnit(function, "7-1", false), false},
	} {
		if got := c.a.Excludes(c.b); got != c.want {
			t.Errorf("%v excludes %v: %t, want %t", c.a, c.b, got, c.want)
		}
	}
}
