// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
)

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
// now is free. The file of claims keeps the units.
func TestClaimOfRenamedDevices(t *testing.T) {
	t.Parallel()
	machine := func(ids ...string) pool.Machine {
		var m pool.Machine
		for i, id := range ids[:2] {
			card := topology.Address{Bus: uint8(0x81 + i)}
			m.GPUs = append(m.GPUs, pool.GPU{Device: gpu.Device{ID: id, Card: card, Part: "7-0"}})
		}
		for i, id := range ids[2:] {
			function := topology.Address{Bus: 0x0c, Function: uint8(i)}
			m.VFs = append(m.VFs, pool.VF{Device: pools.Device{ID: id, Address: function, Aux: "sf.1"}})
		}
		return m
	}
	before := newNodeIndex(State{Machine: machine("MIG-1", "MIG-2", "sf.1", "sf.2")})
	p := Prepared{GPUs: []string{"MIG-1"}, VFs: []string{"sf.1"}}
	p.Units = before.unitsOf(p)
	written, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var read Prepared
	if err := json.Unmarshal(written, &read); err != nil || !maps.Equal(read.Units, p.Units) {
		t.Fatalf("read %+v, %v", read, err)
	}
	holder := Claim{Namespace: "team", Name: "first", Devices: []Prepared{read}}
	state := State{Machine: machine("MIG-3", "MIG-1", "sf.3", "sf.1")}
	for id, held := range map[string]bool{"MIG-3": true, "MIG-1": false} {
		d := newDecision(state, []Claim{holder}, nil)
		err := d.checkDevices(Claim{Name: "second", Devices: []Prepared{{GPUs: []string{id}}}})
		if inUse := err != nil && strings.Contains(err.Error(), "in use by claim team/first"); inUse != held {
			t.Errorf("%s: %v, want in use: %t", id, err, held)
		}
	}
	after := newDecision(state, []Claim{holder}, nil)
	if after.isAvailable("sf.3") || !after.isAvailable("sf.1") {
		t.Errorf("sub-functions are available: sf.3 %t, sf.1 %t", after.isAvailable("sf.3"),
			after.isAvailable("sf.1"))
	}
}
