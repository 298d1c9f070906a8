// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
)

const gpus = "amd.com/gpu"

// devices announces as many, two to a NUMA node.
func devices(count int) device.Announcement {
	var a device.Announcement
	for i := range count {
		address := topology.Address{Bus: 1, Function: uint8(i)}
		a.Devices = append(a.Devices,
			device.Device{ID: address.String(), Address: address, NUMA: topology.Node(i / 2), Healthy: true})
	}
	return a
}

// Once a plugin of the kind announces, devices of other names whose plugin is gone are not healthy, until
// that plugin is back too.
func TestResourceWithoutPlugin(t *testing.T) {
	t.Parallel()
	const old, anew, other = "a/vf", "b/vf", "c/vf"
	announce := func(s Set, name string, kind device.Kind) Set {
		s, err := s.Announce(name, kind, devices(2))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	healthy := func(s Set, name string) bool { return s[name].Ordered()[0].Healthy }
	s := announce(announce(announce(Set{}, old, device.VF), other, device.VF), gpus, device.GPU)
	s = s.Leave(old)
	if s = announce(s, gpus, device.GPU); !healthy(s, old) {
		t.Error("a plugin of another kind takes them away")
	}
	left := s
	s = announce(s, anew, device.VF)
	if healthy(s, old) || !healthy(s, other) || !healthy(s, anew) || !healthy(s, gpus) {
		t.Errorf("healthy: %t of the old name, %t of another, %t of the new one, %t GPUs",
			healthy(s, old), healthy(s, other), healthy(s, anew), healthy(s, gpus))
	}
	if !healthy(left, old) {
		t.Error("the set before has changed")
	}
	if s = announce(s, old, device.VF); !healthy(s, old) {
		t.Error("its plugin is back, and it is not healthy")
	}
}

func TestTooManyResources(t *testing.T) {
	t.Parallel()
	s := Set{}
	for i := range MaxResources {
		var err error
		if s, err = s.Announce(fmt.Sprint("resource-", i), device.VF, device.Announcement{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Announce("one-more", device.VF, device.Announcement{}); err == nil {
		t.Error("one more is taken")
	}
	if _, err := s.Announce("resource-0", device.VF, devices(1)); err != nil {
		t.Errorf("one of them is not: %v", err)
	}
}

// What is saved is what comes back, with nobody connected and nothing healthy.
func TestRestore(t *testing.T) {
	t.Parallel()
	s, err := Set{}.Announce(gpus, device.GPU, devices(3))
	if err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(s.Save())
	if err != nil {
		t.Fatal(err)
	}
	var saved []Saved
	if err := json.Unmarshal(content, &saved); err != nil {
		t.Fatal(err)
	}
	again, err := Restore(saved)
	if err != nil {
		t.Fatal(err)
	}
	want := devices(3).Devices
	for i := range want {
		want[i] = want[i].Complete()
		want[i].Healthy = false
	}
	if diff := cmp.Diff(want, again[gpus].Ordered(),
		cmpopts.EquateComparable(topology.NUMANode{}, topology.Address{})); diff != "" || again[gpus].Joined {
		t.Errorf("connected %t, devices (-saved +restored):\n%s", again[gpus].Joined, diff)
	}
	for name, wrong := range map[string]Saved{
		"no name":    {Kind: device.GPU, Devices: []byte("[]")},
		"no kind":    {Name: gpus, Devices: []byte("[]")},
		"no devices": {Name: gpus, Kind: device.GPU},
		"no address": {Name: gpus, Kind: device.GPU, Devices: []byte(`[{"id":"x","address":"y"}]`)},
	} {
		if _, err := Restore([]Saved{wrong}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A device has the unit that its plugin announced, also under an earlier name; of any other device the ID
// tells the unit.
func TestUnitOf(t *testing.T) {
	t.Parallel()
	card := topology.NewUnit(topology.Address{Bus: 0x81}, "", false)
	replica := topology.Unit{Name: card.Name, Shared: true}
	s := Set{gpus: New(gpus, device.GPU, []device.Device{
		{ID: "GPU-1::0", Unit: replica}, {ID: "amdgpu_xcp_3", Unit: topology.Unit{Name: "0000:82:00.0/3"}},
		{ID: "0000:0c:00.1"},
	})}
	for _, c := range []struct {
		resource, id string
		want         topology.Unit
	}{
		{gpus, "GPU-1::0", replica},
		{"earlier/gpu", "GPU-1", card},
		{"earlier/gpu", "GPU-1::7", replica},
		{"earlier/gpu", "amdgpu_xcp_3", topology.Unit{Name: "0000:82:00.0/3"}},
		{gpus, "0000:0c:00.1", topology.Unit{Name: "0000:0c:00.1"}},
		{"another/plugin", "0000:0c:00.7", topology.Unit{Name: "0000:0c:00.7"}},
		{"another/plugin", "3", topology.Unit{Name: "3"}},
	} {
		if got := s.UnitOf(c.resource, c.id); got != c.want {
			t.Errorf("%s %s is unit %v, want %v", c.resource, c.id, got, c.want)
		}
	}
	restored, err := Restore(s.Save())
	if err != nil || restored.UnitOf("earlier/gpu", "GPU-1") != card {
		t.Errorf("restored: %v", err)
	}
}

// The IDs of a resource stay known under the name before.
func TestOfDevice(t *testing.T) {
	t.Parallel()
	s := Set{}
	for _, name := range []string{"a/vf", "b/vf"} {
		var err error
		if s, err = s.Leave("a/vf").Announce(name, device.VF, devices(1)); err != nil {
			t.Fatal(err)
		}
	}
	if of := s.OfDevice(devices(1).Devices[0].ID, gpus); of != "b/vf" {
		t.Errorf("the device is of %q", of)
	}
}
