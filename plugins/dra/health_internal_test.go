// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/dra/claims"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// TestHealthOfVFs: the kubelet learns that a VF has a fault, alone, in a pair, and as an unpublished device
// of a claim; that a device of a claim is gone; and the health of the VF that a claim has, not of the VF in
// the name of the device. Claims with admin access change nothing.
func TestHealthOfVFs(t *testing.T) {
	t.Parallel()
	ill, well := []string{"0000:0c:00.1"}, []string{"0000:0c:00.2"}
	var list []claims.Claim
	for device, vfs := range map[string][]string{
		"pair-ill": ill, "vf-ill": ill, "vf-hidden": ill, "vf-token": well, "vf-gone": {"0000:0c:00.3"},
	} {
		list = append(list, claims.Claim{UID: types.UID(device), Name: device, Devices: []claims.Prepared{
			{Device: device, VFs: vfs, Group: device},
		}}, claims.Claim{UID: types.UID("admin-" + device), Devices: []claims.Prepared{
			{Device: device, VFs: well, Admin: true, Group: "admin-" + device},
		}})
	}
	list = append(list, claims.Claim{UID: "alone", Name: "alone", Devices: []claims.Prepared{
		{Device: "gpu-vf-alone", GPUs: []string{"g"}, Group: "alone"}, // without the VF, which was not requested
	}})
	s := server{claimService: &claimService{}}
	v := &view{
		observation: observation{prepared: kubelet.Read(list, nil)},
		State: claims.State{
			Machine: pool.Machine{
				GPUs: []pool.GPU{{Device: gpu.Device{ID: "g", Healthy: true}}},
				VFs: []pool.VF{
					{Device: pools.Device{ID: ill[0], Fault: "no carrier"}}, {Device: pools.Device{ID: well[0]}},
				},
			},
			Pool: pool.Pool{Devices: map[string]pool.Device{
				"pair-ill":  {GPUs: []string{"g"}, VFs: ill},
				"pair-well": {GPUs: []string{"g"}, VFs: well}, "vf-ill": {VFs: ill}, "vf-token": {VFs: ill},
				"gpu-vf-alone": {GPUs: []string{"g"}, VFs: ill},
			}},
		},
	}
	got := map[string]string{}
	for _, d := range s.readHealth(v) {
		got[d.DeviceName] = d.Message
		if (d.Health == kubeletplugin.HealthStatusHealthy) != (d.Message == "") {
			t.Errorf("got %+v", d)
		}
	}
	const cause = "VF 0000:0c:00.1 is unhealthy: no carrier"
	if diff := cmp.Diff(map[string]string{
		"pair-ill": cause, "pair-well": "", "vf-ill": cause, "vf-hidden": cause,
		"vf-token": "", "gpu-vf-alone": "", "vf-gone": "the node no longer has 0000:0c:00.3",
	}, got); diff != "" {
		t.Errorf("health (-want +got):\n%s", diff)
	}
}
