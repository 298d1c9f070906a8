// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Count has the numbers of visits of a failpoint, and of the visits with a fault.
type Count struct{ Visits, Faults int }

// Counts has the numbers of each failpoint.
type Counts map[string]*Count

func (c Counts) of(point string) *Count {
	if c[point] == nil {
		c[point] = new(Count)
	}
	return c[point]
}

// Counts returns the numbers of each failpoint.
func (d *Disk) Counts() Counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counts
}

// Add adds other numbers.
func (c Counts) Add(other Counts) {
	for point, count := range other {
		sum := c.of(point)
		sum.Visits += count.Visits
		sum.Faults += count.Faults
	}
}

// Rare returns the failpoints with fewer faults than a minimum.
func (c Counts) Rare(minimum int) (rare []string) {
	for _, point := range slices.Sorted(maps.Keys(c)) {
		if c[point].Faults < minimum {
			rare = append(rare, point)
		}
	}
	return rare
}

// String returns a table of the failpoints.
func (c Counts) String() string {
	var table strings.Builder
	fmt.Fprintf(&table, "%-36s %8s %8s\n", "failpoint", "visits", "faults")
	for _, point := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(&table, "%-36s %8d %8d\n", point, c[point].Visits, c[point].Faults)
	}
	return table.String()
}
