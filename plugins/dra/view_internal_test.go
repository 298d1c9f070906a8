// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"maps"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// A VF that became unhealthy after its publication stays where it is published, as long as it is unhealthy;
// one that was unhealthy before does not.
func TestFailedLater(t *testing.T) {
	t.Parallel()
	vfs := func(ill ...string) (m pool.Machine) {
		for _, id := range []string{"becomes", "became", "was", "well"} {
			d := pools.Device{ID: id}
			if slices.Contains(ill, id) {
				d.Fault = "the RDMA port is not active"
			}
			m.VFs = append(m.VFs, pool.VF{Device: d})
		}
		return m
	}
	v := &view{}
	v.Gates.Known, v.State.Machine, v.failed = true, vfs("became", "was"), map[string]bool{"became": true}
	want := map[string]bool{"becomes": true, "became": true}
	if got := v.failedLater(vfs("becomes", "became", "was")); !maps.Equal(got, want) {
		t.Errorf("failed later: %v, want %v", got, want)
	}
}
