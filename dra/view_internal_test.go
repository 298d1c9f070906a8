// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/dra/claims"
	"github.com/tandem-k8s/tandem/dra/pool"
)

// A cluster gets shared counters after the allocation of a claim: the name of a GPU with its VF is now that
// of the GPU alone. A claim for a pair gets the VF nevertheless.
func TestNameOfAnotherForm(t *testing.T) {
	t.Parallel()
	const name = "gpu-11-00-0"
	alone := pool.Device{Type: pool.GPU, GPUs: []string{"gpu"}}
	both := pool.Device{Type: pool.GPUVF, GPUs: []string{"gpu"}, VFs: []string{"vf"}}
	v := &view{
		State:  claims.State{Pool: pool.Pool{Devices: map[string]pool.Device{name: alone}}},
		others: map[string]pool.Device{name: alone}, former: map[string]pool.Device{name: both},
	}
	for class, want := range map[string]pool.Type{
		"pair.tandem.dev": pool.GPUVF, "gpu.tandem.dev": pool.GPU, "my-gpus": pool.GPU,
	} {
		claim := &resourceapi.ResourceClaim{
			Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{
				{Name: "one", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class}},
			}}},
			Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
				Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
					{Request: "one", Driver: pool.Driver, Device: name},
				}},
			}},
		}
		if got := v.stateFor([]*resourceapi.ResourceClaim{claim}).Pool.Devices[name]; got.Type != want {
			t.Errorf("class %s: a device of type %s, want %s", class, got.Type, want)
		}
	}
	if v.State.Pool.Devices[name].Type != pool.GPU {
		t.Error("the published devices have changed")
	}
}
