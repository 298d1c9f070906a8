// SPDX-License-Identifier: Apache-2.0

package mutation

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestComparisons: a mutation changes the answer only for equal numbers.
func TestComparisons(t *testing.T) {
	for name, c := range map[string]struct {
		compare func(site, a, b int) bool
		want    []bool // of 1 and 2, 2 and 2, 3 and 2
	}{
		"less":             {Less[int], []bool{true, false, false}},
		"less or equal":    {LessEqual[int], []bool{true, true, false}},
		"greater":          {Greater[int], []bool{false, false, true}},
		"greater or equal": {GreaterEqual[int], []bool{false, true, true}},
	} {
		for _, active = range []int{-1, 7} {
			got := []bool{c.compare(7, 1, 2), c.compare(7, 2, 2), c.compare(7, 3, 2)}
			want := slices.Clone(c.want)
			want[1] = want[1] != (active == 7)
			if !slices.Equal(got, want) {
				t.Errorf("%s with mutation %d is %v, want %v", name, active, got, want)
			}
		}
	}
	active = -1
}

// TestReached: each site is recorded once.
func TestReached(t *testing.T) {
	reached = filepath.Join(t.TempDir(), "reached")
	defer func() { reached = "" }()
	for range 2 {
		Not(3, true)
		Pick(4, "a", "b")
	}
	content, err := os.ReadFile(reached)
	if got := strings.Fields(string(content)); err != nil || !slices.Equal(got, []string{"3", "4"}) {
		t.Errorf("recorded %v, %v", got, err)
	}
}
