// SPDX-License-Identifier: Apache-2.0

package gpu_test

import (
	"testing"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

// The unit of a device is the card or its part, whatever the resource, the ID and the number of a replica.
func TestUnit(t *testing.T) {
	t.Parallel()
	card := topology.Address{Bus: 0x81}
	for _, c := range []struct {
		d    gpu.Device
		want topology.Unit
	}{
		{gpu.Device{ID: "GPU-1", Card: card}, topology.Unit{Name: "0000:81:00.0"}},
		{gpu.Device{ID: "GPU-1::2", Card: card}, topology.Unit{Name: "0000:81:00.0", Shared: true}},
		{gpu.Device{ID: "MIG-1", Card: card, Part: "7-0"}, topology.Unit{Name: "0000:81:00.0/7-0"}},
		{gpu.Device{ID: "amdgpu_xcp_3", Card: card, Part: "3"}, topology.Unit{Name: "0000:81:00.0/3"}},
	} {
		if got := c.d.Announced().Unit; got != c.want {
			t.Errorf("the unit of %s is %v, want %v", c.d.ID, got, c.want)
		}
	}
}
