// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"maps"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// A VF that becomes unhealthy after its publication counts as sound, as long as it is unhealthy; one that was
// unhealthy before does not.
func TestSoundVFs(t *testing.T) {
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
	v := &view{wasSound: map[string]bool{"became": true}}
	if v.State.Machine = vfs("became", "was"); v.listSound()["well"] {
		t.Error("a VF was published before the features of the cluster were known")
	}
	v.Gates.Known = true
	want := map[string]bool{"becomes": true, "became": true, "was": false, "well": true}
	if got := v.listSound(); !maps.Equal(got, want) {
		t.Errorf("sound: %v, want %v", got, want)
	}
}
