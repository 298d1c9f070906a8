package main

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
	s := newStatusOf(&api.StatusResponse{
		Pid: 7,
		Resources: []*api.Resource{
			{Name: "amd.com/gpu", Kind: "gpu", Connected: true, Devices: []*api.DeviceStatus{
				{Device: device("a", true), Allocated: true, Owner: &api.Owner{Namespace: "team", Pod: "train", Container: "worker"}},
				{Device: device("b", true)},
				{Device: device("c", false)},
			}},
			{Name: "nvidia.com/vf", Kind: "vf", Devices: []*api.DeviceStatus{
				{Device: &api.Device{Id: "v", Address: "0000:0c:00.1", Healthy: true}},
			}},
		},
		Plan: &api.Plan{Devices: map[string]*api.DeviceList{"nvidia.com/vf": {Ids: []string{"v"}}}},
	})
	const want = `RESOURCE                     DEVICE  ADDRESS       NUMA  STATE      OWNER
amd.com/gpu                  a       0000:11:00.0  1     allocated  team/train/worker
amd.com/gpu                  b       0000:11:00.0  1     free       
amd.com/gpu                  c       0000:11:00.0  1     unhealthy  
nvidia.com/vf (plugin away)  v       0000:0c:00.1  -     planned    
`
	if diff := cmp.Diff(want, string(s.table())); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestStatusWithoutPlugins(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run("status", "--run-dir", t.TempDir())
	if code != exitError || stdout != "" || stderr == "" {
		t.Errorf("exit code %d, standard output %q, standard error %q", code, stdout, stderr)
	}
}
