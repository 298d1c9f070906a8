// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/api"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	node := uint32(1)
	device := func(id string, healthy bool) *api.Device {
		return &api.Device{Id: id, Address: "0000:11:00.0", Numa: &node, Healthy: healthy}
	}
	s := NewStatus(&api.StatusResponse{
		Pid: 7, Protocol: 1, Minor: 1,
		Peers: []*api.Peer{
			{Pid: 0, Version: &api.Version{Major: 1}, Resources: []string{"nvidia.com/vf"}},
			{Pid: 7, Serves: true, Version: &api.Version{Major: 1, Minor: 1, Build: "v1.4.0"},
				Resources: []string{"amd.com/gpu", "amd.com/cpx"}},
		},
		Resources: []*api.Resource{
			{Name: "amd.com/gpu", Kind: "gpu", Connected: true, Devices: []*api.DeviceStatus{
				{Device: device("a", true), Switch: "0000:08:00.0", Allocated: true,
					Owner: &api.Owner{Namespace: "team", Pod: "train", Container: "worker"}},
				{Device: device("b", true), Switch: "0000:09:00.0", Stranded: true},
				{Device: device("c", false), Switch: "0000:08:00.0"},
				{Device: device("d", false), Switch: "0000:09:00.0", Allocated: true},
			}},
			{Name: "nvidia.com/vf", Kind: "vf", Devices: []*api.DeviceStatus{
				{Device: &api.Device{Id: "v", Address: "0000:0c:00.1", Healthy: true}, Switch: "0000:08:00.0"},
				{Device: &api.Device{Id: "0000:0c:00.2", Address: "0000:0c:00.2", Healthy: true}, Switch: "0000:08:00.0",
					Ended: &api.Owner{Namespace: "team", Pod: "over", Container: "worker"}},
			}},
		},
		Plan: &api.Plan{Devices: map[string]*api.DeviceList{"nvidia.com/vf": {Ids: []string{"v"}}}},
	})
	const want = `GPUs free 1/4, VFs free 0/2, same-switch pairs left 0, degraded containers 0; kubelet ?
plugin PID 7, serves, v1.4.0, protocol 1.1: amd.com/gpu registered ?, amd.com/cpx registered ?
plugin in another PID namespace, joined, version ?, protocol 1.0: nvidia.com/vf registered ?
STALE nvidia.com/vf: its plugin is away; 2 devices as they were known last

SWITCH        NUMA  RESOURCE       DEVICE        ADDRESS       STATE                 OWNER
0000:08:00.0  1     amd.com/gpu    a             0000:11:00.0  allocated             team/train/worker
              1     amd.com/gpu    c             0000:11:00.0  unhealthy             -
              -     nvidia.com/vf  v             0000:0c:00.1  planned (stale)       -
              -     nvidia.com/vf  0000:0c:00.2  -             free (stale)          team/over/worker (ended)
0000:09:00.0  1     amd.com/gpu    b             0000:11:00.0  stranded              -
              1     amd.com/gpu    d             0000:11:00.0  allocated, unhealthy  -
`
	if diff := cmp.Diff(want, s.WideTable().String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}
