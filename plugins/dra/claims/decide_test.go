// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
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

// A VF is handed out for a token only if nobody has it: neither a claim, nor a pod with devices from a device
// plugin.
func TestAvailableVFs(t *testing.T) {
	vf := func(id, fault, held string) pool.VF {
		return pool.VF{Device: pools.Device{ID: id, Fault: fault}, Held: held}
	}
	n := newNodeIndex(State{Machine: pool.Machine{VFs: []pool.VF{
		vf("free", "", ""), vf("faulty", "no netdev", ""), vf("outside", "", "pod team/old"), vf("claimed", "", ""),
		vf("token", "", ""),
	}}})
	n.holdDevices(Claim{Devices: []Prepared{{VFs: []string{"claimed"}, Token: "token"}}})
	for _, id := range []string{"free", "faulty", "outside", "claimed", "token", "none"} {
		if got := n.isAvailable(id); got != (id == "free") {
			t.Errorf("%s is available: %t", id, got)
		}
	}
}

// A claim's GPU and sub-function are found under other IDs, by their units; an ID that is another device's
// now is free. A GPU with a MIG device of a claim, which MIG off has hidden, is not.
func TestClaimOfRenamedDevices(t *testing.T) {
	t.Parallel()
	machine := func(ids ...string) pool.Machine {
		var m pool.Machine
		for i, id := range ids[:3] {
			d := gpu.Device{ID: id, Card: topology.Address{Bus: uint8(0x81 + i)}}
			if strings.HasPrefix(id, "MIG-") {
				d.Part = "7-0"
			}
			m.GPUs = append(m.GPUs, pool.GPU{Device: d})
		}
		for i, id := range ids[3:] {
			function := topology.Address{Bus: 0x0c, Function: uint8(i)}
			m.VFs = append(m.VFs, pool.VF{Device: pools.Device{ID: id, Address: function, Aux: "sf.1"}})
		}
		return m
	}
	before := newNodeIndex(State{Machine: machine("MIG-1", "MIG-2", "MIG-4", "sf.1", "sf.2")})
	p := Prepared{GPUs: []string{"MIG-1", "MIG-4"}, VFs: []string{"sf.1"}}
	before.recordUnits(&p)
	state := State{Machine: machine("MIG-3", "MIG-1", "GPU-1", "sf.3", "sf.1")}
	holders := Present(state.Machine, []Claim{{Namespace: "team", Name: "first", Devices: []Prepared{p}}})
	d := newDecision(state, holders, nil)
	for id, held := range map[string]bool{"MIG-3": true, "MIG-1": false, "GPU-1": true} {
		err := d.checkDevices(Claim{Name: "second", Devices: []Prepared{{GPUs: []string{id}}}})
		if inUse := err != nil && strings.Contains(err.Error(), "in use by claim team/first"); inUse != held {
			t.Errorf("%s: %v, want in use: %t", id, err, held)
		}
	}
	if d.isAvailable("sf.3") || !d.isAvailable("sf.1") {
		t.Errorf("sub-functions are available: sf.3 %t, sf.1 %t", d.isAvailable("sf.3"), d.isAvailable("sf.1"))
	}
}

// A claim's devices have the present IDs of their units.
func TestPresent(t *testing.T) {
	t.Parallel()
	machine := pool.Machine{VFs: []pool.VF{
		{Device: pools.Device{ID: "sf.8", Address: topology.Address{Bus: 1}, Aux: "sf.1"}},
		{Device: pools.Device{ID: "sf.1", Address: topology.Address{Bus: 1}, Aux: "sf.2"}},
		{Device: pools.Device{ID: "sf.3", Address: topology.Address{Bus: 1}, Aux: "sf.3"}},
	}, GPUs: []pool.GPU{{Device: gpu.Device{ID: "xcp.2", Card: topology.Address{Bus: 2}, Part: "1"}}}}
	const sf1, sf2, sf3, sf4, part = "0000:01:00.0/sf.1", "0000:01:00.0/sf.2", "0000:01:00.0/sf.3",
		"0000:01:00.0/sf.4", "0000:02:00.0/1"
	type units = map[string]string
	for name, c := range map[string]struct{ recorded, want Prepared }{
		"renamed": {
			Prepared{GPUs: []string{"xcp_2"}, VFs: []string{"sf.1", "sf.2"}, Units: units{
				"xcp_2": part, "sf.1": sf1, "sf.2": sf2,
			}},
			Prepared{GPUs: []string{"xcp.2"}, VFs: []string{"sf.8", "sf.1"}, Units: units{
				"xcp.2": part, "sf.8": sf1, "sf.1": sf2,
			}},
		},
		"a token": {
			Prepared{VFs: []string{"sf.3"}, Token: "sf.1", Units: units{"sf.3": sf3, "sf.1": sf1}},
			Prepared{VFs: []string{"sf.3"}, Token: "sf.8", Units: units{"sf.3": sf3, "sf.8": sf1}},
		},
		"gone": {
			Prepared{VFs: []string{"sf.4"}, Units: units{"sf.4": sf4}},
			Prepared{VFs: []string{"sf.4"}, Units: units{"sf.4": sf4}},
		},
		"gone, and another unit has the ID": {
			Prepared{VFs: []string{"sf.1"}, Units: units{"sf.1": sf4}}, Prepared{VFs: []string{sf4}},
		},
		"there again": {Prepared{VFs: []string{sf2}}, Prepared{VFs: []string{"sf.1"}, Units: units{"sf.1": sf2}}},
		"of an earlier driver": {
			Prepared{GPUs: []string{"xcp.2"}, VFs: []string{"sf.1", "sf.2"}},
			Prepared{
				GPUs: []string{"xcp.2"}, VFs: []string{"sf.1", "sf.2"},
				Units: units{"xcp.2": "0000:02:00.0/1", "sf.1": "0000:01:00.0/sf.2"},
			},
		},
	} {
		beside := Prepared{GPUs: []string{"GPU-1"}, With: c.recorded.VFs[0]}
		want := Prepared{GPUs: []string{"GPU-1"}, With: c.want.VFs[0]}
		recorded := []Claim{{UID: "uid", Devices: []Prepared{c.recorded, beside}}}
		copied, err := json.Marshal(recorded)
		if err != nil {
			t.Fatal(err)
		}
		got := Present(machine, recorded)
		if diff := cmp.Diff([]Claim{{UID: "uid", Devices: []Prepared{c.want, want}}}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		after, err := json.Marshal(recorded)
		if err != nil || !bytes.Equal(copied, after) {
			t.Errorf("%s: the recorded claims are %s now, and were %s", name, after, copied)
		}
	}
}
