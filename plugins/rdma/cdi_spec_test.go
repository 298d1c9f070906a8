// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

func TestCDINames(t *testing.T) {
	long := strings.Repeat("x", 60)
	for _, c := range []struct {
		pool cdiPool
		name string
		kind pools.DeviceType
	}{
		{cdiPool{"a.b", "net-sf", "sriov-dp-a.b-net-sf-c.yaml", "cdi.k8s.io/a.b_net-sf"}, "a.b/c",
			pools.AuxNetDevice},
		{cdiPool{"a.b", "net-accel", "sriov-dp-a.b-net-accel-c.yaml", "cdi.k8s.io/a.b_net-accel"}, "a.b/c",
			pools.Accelerator},
		{cdiPool{long, "net-pci", "sriov-dp-" + long + "-net-pci-c.yaml", "cdi.k8s.io/sriov-dp-ee23cb5f45b1bd15"},
			long + "/c", pools.NetDevice},
	} {
		got := cdiPoolOf(pools.Pool{Name: c.name, Resource: &pools.ResourceConfig{DeviceType: c.kind}, First: true})
		if diff := cmp.Diff(c.pool, got, cmp.AllowUnexported(cdiPool{})); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}
