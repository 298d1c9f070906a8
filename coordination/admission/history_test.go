// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// The index refers only to decisions in the log, for repeated as well as for distinct devices.
func TestDecisionsAreForgotten(t *testing.T) {
	t.Parallel()
	var d decisionLog
	for i := range 4 * maxDecisions {
		at := time.Unix(int64(i), 0)
		d.recordAllocate(answeredAllocate{at: at, resource: "amd.com/gpu", ids: []string{fmt.Sprint("gpu-", i%7)}})
		d.recordAllocate(answeredAllocate{at: at, resource: "nvidia.com/vf", ids: []string{fmt.Sprint("vf-", i)}})
		for first, e := range d.newest {
			if !slices.Contains(d.entries, e) || e.allocated[0] != first.id {
				t.Fatalf("after %d decisions %v is that of %v", 2*i, first, e.allocated)
			}
		}
	}
	if len(d.entries) != maxDecisions || len(d.newest) != 7+maxDecisions/2 {
		t.Errorf("%d decisions, %d of them the newest of a device", len(d.entries), len(d.newest))
	}
}
