// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/api"
)

func TestStatusOfDRA(t *testing.T) {
	t.Parallel()
	s := NewStatus(&api.StatusResponse{
		Pid: 7, Protocol: 2, Minor: 2, Mode: "dra",
		Notes: []string{"feature gate DRAPartitionableDevices of the API server (v1.35.0) is off"},
		Peers: []*api.Peer{{Pid: 7, Serves: true, Version: &api.Version{Major: 2, Minor: 2, Build: "v1.4.0"},
			Resources: []string{"amd.com/gpu"}}},
		Resources: []*api.Resource{{Name: "amd.com/gpu", Kind: "gpu", Connected: true, Devices: []*api.DeviceStatus{
			{Device: &api.Device{Id: "a", Address: "0000:11:00.0", Healthy: true}, Switch: "0000:08:00.0",
				Allocated: true, Owner: &api.Owner{Namespace: "team", Pod: "train-0", Container: "claim pairs"}},
			{Device: &api.Device{Id: "b", Address: "0000:12:00.0", Healthy: true}, Switch: "0000:09:00.0",
				Allocated: true, Owner: &api.Owner{Pod: "a pod with UID 1", Container: "by a device plugin"}},
		}}},
	})
	s.Kubelet = &Kubelet{State: kubeletUp}
	const want = `GPUs free 0/2, VFs free -, same-switch pairs left 0, degraded containers 0; kubelet up
mode dra: the scheduler allocates; driver PID 7, v1.4.0, protocol 2.2: amd.com/gpu
NOTE feature gate DRAPartitionableDevices of the API server (v1.35.0) is off

SWITCH        NUMA  FREE GPUS  FREE VFS  OWNERS
0000:08:00.0  -     0/1        -         team/train-0/claim pairs
0000:09:00.0  -     0/1        -         a pod with UID 1/by a device plugin
`
	if diff := cmp.Diff(want, s.Table().String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestExplanationOfDRA(t *testing.T) {
	t.Parallel()
	owner := &api.Owner{Namespace: "team", Pod: "train-0", Container: "claim pairs"}
	text := explainDecisions(newDecisions(&api.ExplainResponse{Decisions: []*api.Decision{
		{Container: owner, Resource: "request pairs", Known: "claim team/pairs", Size: 1, TimeUnixNano: 1,
			Chosen: []string{"pair-11-00-0"}, Reason: "the scheduler chose pair-11-00-0", AllocatedUnixNano: 1,
			Allocated: []string{"a", "b"}, Pairs: []*api.Pair{{Gpu: "a", Vf: "b", Distance: "PIX"}}},
		{Container: owner, Known: "claim team/pairs", TimeUnixNano: 1, Refusal: "it is gone"},
	}}), nil, false).String()
	for _, want := range []string{
		"request pairs of team/train-0/claim pairs", "result     the scheduler chose pair-11-00-0",
		"allocated  a b", "PIX", "refused  it is gone",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\nlacks %q", text, want)
		}
	}
}
