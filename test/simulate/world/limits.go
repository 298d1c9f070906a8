// SPDX-License-Identifier: Apache-2.0

package world

import "fmt"

// CheckNumbers returns an error if a number of a simulation is too small, or needs more memory or time than a
// computer has.
func CheckNumbers(seeds, arrivals, warmup int) error {
	for _, n := range []struct {
		name                string
		number, least, most int
	}{
		{"seeds", seeds, 1, 10_000}, {"arrivals", arrivals, 1, 1_000_000},
		{"warmup", warmup, 0, 1_000_000},
	} {
		if n.number < n.least || n.number > n.most {
			return fmt.Errorf("simulate: %s %d: want %d to %d", n.name, n.number, n.least, n.most)
		}
	}
	return nil
}
