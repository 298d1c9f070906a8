// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"testing"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// A degraded device that is withheld has not failed: its pod would get the event DeviceFailed.
func TestWithheldHasNotFailed(t *testing.T) {
	pool := pools.Pool{Devices: []pools.Device{
		{ID: "degraded", Degraded: "slow", Selector: &pools.Selector{}},
		{ID: "failed", Fault: "down", Selector: &pools.Selector{}},
	}}
	announced, listed := list(pool, coordination.Holders{coordination.Every: "unknown"})
	for i, want := range []string{"", device.Failed} {
		if got := device.Health(announced[i].Encode()); got != want || listed[i].Healthy {
			t.Errorf("%s is %q, healthy %t", announced[i].ID, got, listed[i].Healthy)
		}
	}
}
