// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// requiring returns a claim whose parameters require alignment.
func requiring(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	config := resourceapi.DeviceAllocationConfiguration{}
	config.Opaque = &resourceapi.OpaqueDeviceConfiguration{
		Driver: pool.Driver, Parameters: runtime.RawExtension{Raw: []byte(`{"alignment": "required"}`)},
	}
	claim.Status.Allocation.Devices.Config = append(claim.Status.Allocation.Devices.Config, config)
	return claim
}

// TestSharedClaim: a container that uses a shared claim and a claim of its own is rejected for the same
// reason, whether the kubelet asks for both in one call, or only for the second, because another pod has had
// the shared claim prepared before.
func TestSharedClaim(t *testing.T) {
	for name, c := range map[string]struct {
		shared, own func() *resourceapi.ResourceClaim
		want        string
	}{
		"variables of VFs": {
			func() *resourceapi.ResourceClaim { return newClaim("shared", "vf", "vf-2a-00-2") },
			func() *resourceapi.ResourceClaim { return newClaim("own", "vf", "vf-2a-00-3") },
			"both set NCCL_IB_HCA",
		},
		"variables of a VF and a pair": {
			func() *resourceapi.ResourceClaim { return newClaim("shared", "vf", "vf-2a-00-2") },
			func() *resourceapi.ResourceClaim { return newClaim("own", "pair", "pair-11-00-0") },
			"both set NCCL_IB_HCA",
		},
		"required alignment": {
			func() *resourceapi.ResourceClaim { return requiring(newClaim("shared", "gpu", "gpu-11-00-0")) },
			func() *resourceapi.ResourceClaim { return newClaim("own", "vf", "vf-2a-00-2") },
			"alignment is required",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, together := range []bool{true, false} {
				shared, own := c.shared(), c.own()
				wrong := prepareShared(t, shared, own, together)
				switch {
				case strings.Contains(wrong, c.want):
				case together:
					t.Fatalf("control: both in one call: %q, want %q", wrong, c.want)
				default:
					t.Errorf("prepared alone: %q, want %q", wrong, c.want)
				}
			}
		})
	}
}

// prepareShared asks for two claims of a container in one call, or for the second one after another pod has
// had the first one prepared. It returns the last answer.
func prepareShared(t *testing.T, shared, own *resourceapi.ResourceClaim, together bool) (wrong string) {
	c, n := newCluster(t, "v1.37.1"), newNode(t, machine, 4)
	n.pools = `{"resourceList": [{"resourceName": "rdma_vf", "selectors": {"isRdma": true},
		"tandem": {"variables": ["NCCL_IB_HCA"]}}]}`
	config, _ := n.config(c, "")
	defer n.start(config)()
	k := n.register("")
	if together {
		c.reserve("second", shared, own)
		_, wrong = k.prepare(t.Context(), shared, own)
		return wrong
	}
	c.reserve("first", shared)
	if _, wrong := k.prepare(t.Context(), shared); wrong != "" {
		t.Fatalf("control: the shared claim alone: %s", wrong)
	}
	c.reserve("second", shared, own)
	_, wrong = k.prepare(t.Context(), own)
	return wrong
}
