// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"maps"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// A claim that was allocated a VF gets the VF, also if the VF has become part of a pair meanwhile.
func TestVFOfAPairForAnEarlierClaim(t *testing.T) {
	t.Parallel()
	recorded, err := machines.Load("oci-mi300x-derived", 2)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := topology.Read(recorded.FS())
	if err != nil {
		t.Fatal(err)
	}
	machine, err := pool.ReadMachine(recorded.FS(), tree, nil)
	if err != nil {
		t.Fatal(err)
	}
	const vf, gone = "vf-0c-00-1", "vf-0c-00-7"
	for name, gates := range map[string]features{
		"counters": {Known: true, Counters: true, Taints: true},
		"plain":    {Known: true},
	} {
		v := newView(machine, observation{Gates: gates}, pool.Options{})
		if _, published := v.State.Pool.Devices[vf]; published {
			t.Fatalf("%s: %s is published: this shows nothing", name, vf)
		}
		claim := &resourceapi.ResourceClaim{}
		claim.Status.Allocation = &resourceapi.AllocationResult{}
		for _, device := range []string{vf, gone} {
			claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results,
				resourceapi.DeviceRequestAllocationResult{Driver: pool.Driver, Device: device})
		}
		devices := v.stateFor([]*resourceapi.ResourceClaim{claim}).Pool.Devices
		if d := devices[vf]; d.Type != pool.TypeVF || len(d.VFs) != 1 || d.VFs[0] != "0000:0c:00.1" {
			t.Errorf("%s: the claim has %+v", name, d)
		}
		if _, known := devices[gone]; known {
			t.Errorf("%s: the claim has a VF that the node lacks", name)
		}
		if _, published := v.State.Pool.Devices[vf]; published {
			t.Errorf("%s: %s is published", name, vf)
		}
	}
}

// A VF that became unhealthy after its publication stays where it is published, as long as it is unhealthy;
// one that was unhealthy before does not.
func TestFailedLater(t *testing.T) {
	t.Parallel()
	vfs := func(ill ...string) (m pool.Machine) {
		for _, id := range []string{"becomes", "became", "was", "well"} {
			d := pools.Device{ID: id}
			if slices.Contains(ill, id) {
				d.Fault = "the RDMA port is not active"
			}
			m.VFs = append(m.VFs, pool.VF{Device: d})
		}
		return m
	}
	v := &view{}
	v.Gates.Known, v.State.Machine, v.failed = true, vfs("became", "was"), map[string]bool{"became": true}
	want := map[string]bool{"becomes": true, "became": true}
	if got := v.failedLater(vfs("becomes", "became", "was")); !maps.Equal(got, want) {
		t.Errorf("failed later: %v, want %v", got, want)
	}
}
