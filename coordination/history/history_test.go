// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// The index refers only to decisions in the log, for repeated as well as for distinct devices.
func TestDecisionsAreForgotten(t *testing.T) {
	t.Parallel()
	var d Log
	for i := range 4 * Most {
		at := time.Unix(int64(i), 0)
		d.RecordAllocation(Allocation{At: at, Resource: "amd.com/gpu", IDs: []string{fmt.Sprint("gpu-", i%7)}})
		d.RecordAllocation(Allocation{At: at, Resource: "nvidia.com/vf", IDs: []string{fmt.Sprint("vf-", i)}})
		for first, e := range d.newest {
			if !slices.Contains(d.entries, e) || e.Allocated[0] != first.id {
				t.Fatalf("after %d decisions %v is that of %v", 2*i, first, e.Allocated)
			}
		}
	}
	if len(d.entries) != Most || len(d.newest) != 7+Most/2 {
		t.Errorf("%d decisions, %d of them the newest of a device", len(d.entries), len(d.newest))
	}
}
