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
