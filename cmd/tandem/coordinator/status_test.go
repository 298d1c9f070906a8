// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/test/golden"
	"github.com/tandem-k8s/tandem/test/machines"
)

func ready(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ownedBy is a device that a container has.
func ownedBy(namespace, pod, container string, d *api.DeviceStatus) *api.DeviceStatus {
	d.Allocated, d.Owner = true, &api.Owner{Namespace: namespace, Pod: pod, Container: container}
	return d
}

// ofContainer are devices on switches, all of one container.
func ofContainer(gpus, vfs string) *api.StatusResponse {
	on := func(name, kind, switches string) *api.Resource {
		r := &api.Resource{Name: name, Kind: kind, Connected: true}
		for at := range strings.FieldsSeq(switches) {
			d := &api.DeviceStatus{Device: &api.Device{Healthy: true}, Switch: at}
			r.Devices = append(r.Devices, ownedBy("team", "train", "worker", d))
		}
		return r
	}
	return &api.StatusResponse{Resources: []*api.Resource{
		on("amd.com/gpu", "gpu", gpus), on("tandem.dev/vf", "vf", vfs),
	}}
}

// TestStatus: both tables of a status, for testdata/status-NAME.txt.
func TestStatus(t *testing.T) {
	t.Parallel()
	node := uint32(1)
	gpu := func(id, at string, healthy bool) *api.DeviceStatus {
		return &api.DeviceStatus{
			Device: &api.Device{Id: id, Address: "0000:11:00.0", Numa: &node, Healthy: healthy}, Switch: at,
		}
	}
	vf := func(id string, healthy, degraded bool, reason string) *api.DeviceStatus {
		return &api.DeviceStatus{Switch: "0000:08:00.0", Device: &api.Device{
			Id: id, Address: "0000:0c:00.1", Healthy: healthy, Degraded: degraded, Reason: reason,
		}}
	}
	stranded, allocated := gpu("b", "0000:09:00.0", true), gpu("d", "0000:09:00.0", false)
	stranded.Stranded, allocated.Allocated = true, true
	ended := vf("0000:0c:00.1", true, false, "") // without a name beside its address
	ended.Ended = &api.Owner{Namespace: "team", Pod: "over", Container: "worker"}
	ofHealth := []*api.DeviceStatus{vf("a", false, false, "link_downed increased"), vf("c", true, false, "")}
	for i := range 6 {
		ofHealth = append(ofHealth, vf(fmt.Sprint("b", i), true, true, "symbol_error increased"))
	}
	for name, answer := range map[string]*api.StatusResponse{
		"states": {
			Pid: 7, Protocol: 1, Minor: 1,
			Peers: []*api.Peer{
				{Pid: 0, Version: &api.Version{Major: 1}, Resources: []string{"nvidia.com/vf"}},
				{Pid: 7, Serves: true, Version: &api.Version{Major: 1, Minor: 1, Build: "v1.4.0"},
					Resources: []string{"amd.com/gpu", "amd.com/cpx"}},
			},
			Resources: []*api.Resource{
				{Name: "amd.com/gpu", Kind: "gpu", Connected: true, Devices: []*api.DeviceStatus{
					ownedBy("team", "train", "worker", gpu("a", "0000:08:00.0", true)), stranded,
					gpu("c", "0000:08:00.0", false), allocated,
				}},
				{Name: "nvidia.com/vf", Kind: "vf", Devices: []*api.DeviceStatus{vf("v", true, false, ""), ended}},
			},
			Plan: &api.Plan{Devices: map[string]*api.DeviceList{"nvidia.com/vf": {Ids: []string{"v"}}}},
		},
		"dra": {
			Pid: 7, Protocol: 2, Minor: 2, Mode: "dra",
			Notes: []string{"feature gate DRAPartitionableDevices of the API server (v1.35.0) is off"},
			Peers: []*api.Peer{{Pid: 7, Serves: true, Version: &api.Version{Major: 2, Minor: 2, Build: "v1.4.0"},
				Resources: []string{"amd.com/gpu"}}},
			Resources: []*api.Resource{
				{Name: "amd.com/gpu", Kind: "gpu", Connected: true, Devices: []*api.DeviceStatus{
					ownedBy("team", "train-0", "claim pairs", gpu("a", "0000:08:00.0", true)),
					ownedBy("", "a pod with UID 1", "by a device plugin", gpu("b", "0000:09:00.0", true)),
				}},
			},
		},
		"health": {Resources: []*api.Resource{
			{Name: "tandem.dev/vf", Kind: "vf", Connected: true, Devices: ofHealth},
		}},
		"two-pairs":       ofContainer("0000:08:00.0 0000:09:00.0", "0000:09:00.0 0000:08:00.0"),
		"one-pair-of-two": ofContainer("0000:08:00.0 0000:08:00.0", "0000:08:00.0 0000:09:00.0"),
		"annotations": {
			Alignment: &api.Alignment{Policy: "preferred", Annotations: true, Source: "pods-api"},
		},
		"annotations-unread": {Alignment: &api.Alignment{Policy: "preferred", Why: "kubelet: no"}},
		"of-an-older-plugin": {},
	} {
		s := NewStatus(answer)
		golden.Check(t, "testdata/status-"+name+".txt", fmt.Sprintf("%s\n%s", s.Table(), s.WideTable()))
	}
}

// TestUnoffered: of a machine with GPUs that no plugin offers it is said what tandem-gpu may wait for, which
// is no driver that has the GPUs.
func TestUnoffered(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for _, c := range []struct {
		about, vendor string
		sys           fs.FS
	}{
		{"NVIDIA's GPUs", "", machines.Sys(t, "nv-h100-oci", 0)},
		{"AMD's GPUs", "", machines.Sys(t, "oci-mi300x-derived", 0)},
		{"AMD's GPUs, with gpu.vendor=nvidia", "nvidia", machines.Sys(t, "oci-mi300x-derived", 0)},
		{"a machine that cannot be read", "", fstest.MapFS{}},
	} {
		fmt.Fprintf(&all, "== %s\n%s\n", c.about, DescribeUnoffered(c.sys, c.vendor))
	}
	golden.Check(t, "testdata/unoffered.txt", all.String())
}

// TestOffersGPUs: a plugin offers GPUs while it is there.
func TestOffersGPUs(t *testing.T) {
	t.Parallel()
	connected, away := Resource{Kind: "gpu", Connected: true}, Resource{Kind: "gpu"}
	vfs := Resource{Kind: "vf", Connected: true}
	if !(Status{Resources: []Resource{vfs, connected}}).OffersGPUs() ||
		(Status{Resources: []Resource{vfs, away}}).OffersGPUs() {
		t.Error("a plugin offers GPUs while it is there")
	}
}

// TestNotesAboutVFs: a status without VFs says who offers none.
func TestNotesAboutVFs(t *testing.T) {
	t.Parallel()
	gpus := Resource{Kind: "gpu", Connected: true, Devices: []Device{{}}}
	for name, c := range map[string]struct {
		status Status
		want   string
	}{
		"none":            {Status{Resources: []Resource{gpus}}, noVFPlugin + "tandem-rdma does not run here"},
		"no device":       {Status{Resources: []Resource{gpus, {Kind: "vf", Connected: true}}}, "the config"},
		"in mode DRA":     {Status{Mode: "dra", Resources: []Resource{gpus}}, "no VF is published"},
		"DRA without any": {Status{Mode: "dra"}, "no VF is published"},
		"some":            {Status{Resources: []Resource{gpus, {Kind: "vf", Devices: []Device{{}}}}}, ""},
	} {
		c.status.noteMissing(fstest.MapFS{})
		notes := strings.Join(c.status.Notes, "\n")
		if !strings.HasPrefix(notes, c.want) || c.want == "" && notes != "" {
			t.Errorf("%s: notes %q, want %q", name, notes, c.want)
		}
	}
}
