// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// A GPU with its VF in one device is a GPU alone for the classes of GPUs, those of resource names too.
func TestAsksForGPU(t *testing.T) {
	t.Parallel()
	for class, want := range map[string]bool{
		"gpu.tandem.dev": true, "amd.com-gpu.tandem.dev": true, "nvidia.com-gpu.tandem.dev": true,
		"pair.tandem.dev": false, "my-pairs": false,
	} {
		claim := &resourceapi.ResourceClaim{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{
				{Name: "one", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class}},
				{Name: "two", FirstAvailable: []resourceapi.DeviceSubRequest{{Name: "near", DeviceClassName: class}}},
			},
		}}}
		for _, request := range []string{"one", "two/near"} {
			if got := asksForGPU(claim, request); got != want {
				t.Errorf("class %s, request %s: %v", class, request, got)
			}
		}
		if asksForGPU(claim, "three") {
			t.Error("a request that is not there asks for GPUs")
		}
	}
}

// TestGPUWithoutItsVF: where a GPU is one device with its VF, a claim for a GPU alone does not get the VF.
func TestGPUWithoutItsVF(t *testing.T) {
	for class, vfs := range map[string]int{"gpu.tandem.dev": 0, "pair.tandem.dev": 1} {
		n := newNode(t, "oci-mi300x-derived", 4, toldVFs, false)
		claim := n.need("train", want{"devices", pool.TypePair, 1})
		claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{
			{Name: "devices", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class}},
		}
		n.ready(claim)
		if d := n.prepared(claim.UID).Devices[0]; len(d.GPUs) != 1 || len(d.VFs) != vfs {
			t.Errorf("class %s: %+v", class, d)
		}
	}
}
