// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"path/filepath"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/pairs"
)

// TestPairsOfAnUnannouncedResource: the announcement of a resource beyond the limits (device.MaxDevices)
// is not sent, and its plugin works on: the coordinator records its Allocates, and its pairs file is asked
// for. The answer then has no pair, no call panics, and the coordinator writes the file.
func TestPairsOfAnUnannouncedResource(t *testing.T) {
	a := newAdmission(t, "oci-mi300x-derived", 1, true, 1)
	const shared = "rdma/hca_shared"
	ids := []string{"0000:0c:00.0::1"}
	taken, err := a.coordinator.Allocated(t.Context(), shared, ids)
	if err != nil || taken.GetRefusal() != "" {
		t.Fatal(taken, err)
	}
	defer func() {
		if cause := recover(); cause != nil {
			t.Errorf("panic: %v", cause)
		}
	}()
	file := filepath.Join(a.movePairs(), "pairs.json")
	served, written, _ := a.coordinator.Pair(shared, ids, file, []pairs.VF{{ID: ids[0]}})
	if len(served) > 0 || !written {
		t.Errorf("pairs %v, file written: %v", served, written)
	}
}
