// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"slices"
	"testing"
)

// TestRanges compares InsertRange and DeleteRange with one device after the other.
func TestRanges(t *testing.T) {
	t.Parallel()
	for first := range 130 {
		for last := first; last < 130; last++ {
			filled, added := make(Set, 3), make(Set, 3)
			filled.InsertRange(first, last)
			for i := first; i <= last; i++ {
				added.Insert(i)
			}
			if !slices.Equal(filled, added) {
				t.Fatalf("%d-%d is %x", first, last, filled)
			}
			full := Set{^uint64(0), ^uint64(0), ^uint64(0)}
			full.DeleteRange(first, last)
			filled.Include(full)
			if full.Common(added) != 0 || filled.Len() != 192 {
				t.Fatalf("without %d-%d there are %x", first, last, full)
			}
		}
	}
}
