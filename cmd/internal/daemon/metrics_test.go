// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
)

// apart is a node on which a container has a GPU and a VF on two switches, until it has ended.
type apart struct {
	fake
	role  coordination.Role
	ended bool
}

func (a *apart) Role() coordination.Role { return a.role }

func (a *apart) Resources() []*api.Resource {
	device := func(at string) *api.DeviceStatus {
		owner := &api.Owner{Namespace: "team", Pod: "train", Container: "worker"}
		if a.ended {
			return &api.DeviceStatus{Switch: at, Ended: owner}
		}
		return &api.DeviceStatus{Switch: at, Owner: owner, Allocated: true}
	}
	return []*api.Resource{
		{Name: "amd.com/gpu", Kind: "gpu", Devices: []*api.DeviceStatus{device("0000:08:00.0")}},
		{Name: "tandem.dev/vf", Kind: "vf", Devices: []*api.DeviceStatus{device("0000:09:00.0")}},
	}
}

// Degraded containers are running ones, reported by one of the two plugins.
func TestDegradedContainers(t *testing.T) {
	for _, c := range []struct {
		node apart
		want string
	}{
		{apart{role: coordination.Serves}, "\ntandem_containers_degraded 1\n"},
		{apart{role: coordination.Serves, ended: true}, "\ntandem_containers_degraded 0\n"},
		{apart{role: coordination.Joined}, ""},
	} {
		m := newMonitor("v1.2.3")
		m.Node(&c.node)
		shown := show(m)
		if !strings.Contains(shown, c.want) || c.want == "" && strings.Contains(shown, "containers_degraded") {
			t.Errorf("%s, ended %v: want %q in\n%s", c.node.role, c.node.ended, c.want, shown)
		}
	}
}

// ill is a node with devices that are not good.
type ill struct{ apart }

func (*ill) Resources() []*api.Resource {
	device := func(healthy, degraded bool, reason string) *api.DeviceStatus {
		return &api.DeviceStatus{Device: &api.Device{Healthy: healthy, Degraded: degraded, Reason: reason}}
	}
	return []*api.Resource{{Name: "tandem.dev/vf", Kind: "vf", Devices: []*api.DeviceStatus{
		device(true, false, ""), device(false, false, ""), // the second one is withheld
		device(true, true, "slow"), device(true, true, "slow"), device(false, true, "down"),
	}}}
}

// Failed and degraded devices are counted by reason.
func TestUnsoundDevices(t *testing.T) {
	m := newMonitor("v1.2.3")
	m.Node(&ill{apart{role: coordination.Serves}})
	shown := show(m)
	for _, want := range []string{
		`tandem_devices_unsound{reason="down",resource="tandem.dev/vf",state="failed"} 1`,
		`tandem_devices_unsound{reason="slow",resource="tandem.dev/vf",state="degraded"} 2`,
	} {
		if !strings.Contains(shown, want+"\n") {
			t.Errorf("want %s in\n%s", want, shown)
		}
	}
	if n := strings.Count(shown, "devices_unsound{"); n != 2 {
		t.Errorf("%d series in\n%s", n, shown)
	}
}
