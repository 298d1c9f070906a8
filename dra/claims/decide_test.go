// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1"
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
