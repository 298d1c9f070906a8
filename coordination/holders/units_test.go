// SPDX-License-Identifier: Apache-2.0

package holders_test

import (
	"testing"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
)

// A container with a unit excludes other containers from the unit, whatever the names; the containers of
// replicas share the unit, and exclude who wants the unit alone.
func TestByUnit(t *testing.T) {
	t.Parallel()
	const alone, replica, another = "0000:0c:00.1", "0000:0c:00.1::0", "0000:0c:00.1::1"
	for _, c := range []struct {
		has, resource, id string // the device of the container, and the device in question
		held, elsewhere   bool
	}{
		{alone, "old/vf", alone, true, false},
		{alone, "new/vf", alone, true, true},
		{alone, "old/vf", "0000:0c:00.2", false, false},
		{alone, "rdma/hca", replica, true, true},
		{replica, "new/vf", alone, true, true},
		{replica, "old/vf", replica, true, false},
		{replica, "old/vf", another, false, false},
		{replica, "rdma/hca", replica, false, false},
	} {
		found := holders.Holders{{UID: "uid", Name: "main", Devices: kubelet.Devices{"old/vf": {c.has}}}}
		units := found.ByUnit(func(_, id string) topology.Unit { return topology.UnitOfID(id) })
		if h := units.Of(c.resource, c.id); (h != nil) != c.held || h != nil && h.UID != "uid" {
			t.Errorf("%s is held: holder of %s %s is %v", c.has, c.resource, c.id, h)
		}
		held, elsewhere := units.Elsewhere(c.resource, c.id)
		if elsewhere != c.elsewhere || elsewhere && (held.Resource != "old/vf" || held.ID != c.has) {
			t.Errorf("%s is held: %s %s is held elsewhere: %t, as %s %s", c.has, c.resource, c.id, elsewhere,
				held.Resource, held.ID)
		}
	}
}

// A GPU and its MIG devices, which a container has from before the GPU was repartitioned, exclude each other;
// MIG devices of one GPU do not, nor partitions of an AMD GPU, nor a function and its sub-function.
func TestByUnitOfParts(t *testing.T) {
	t.Parallel()
	const card = "0000:81:00.0"
	unitOf := func(_, id string) topology.Unit {
		original, shared := topology.CutReplica(id)
		return topology.Unit{Name: original, Shared: shared}
	}
	for _, c := range []struct {
		has, id string
		held    bool
	}{
		{card, card + "/7-0", true},
		{card, card + "/7-0::1", true},
		{card + "::0", card + "/7-0", true},
		{card + "/7-0", card, true},
		{card + "/7-0::1", card, true},
		{card + "/7-0", card + "::0", true},
		{card + "/7-0", card + "/8-0", false},
		{card + "/7-0", "0000:82:00.0", false},
		{card, "0000:82:00.0/7-0", false},
		{card, card + "/3", false},
		{card + "/3", card, false},
		{card, card + "/mlx5_core.sf.4", false},
		{card + "/mlx5_core.sf.4", card, false},
	} {
		found := holders.Holders{{UID: "uid", Name: "main", Devices: kubelet.Devices{"old/gpu": {c.has}}}}
		units := found.ByUnit(unitOf)
		if _, elsewhere := units.Elsewhere("new/gpu", c.id); elsewhere != c.held ||
			(units.Of("new/gpu", c.id) != nil) != c.held {
			t.Errorf("%s is held: %s is held: %t", c.has, c.id, elsewhere)
		}
	}
}

// The app container has the devices that the pod's init container had.
func TestByUnitOfInitContainer(t *testing.T) {
	t.Parallel()
	init := holders.Holder{Name: "init", Init: true, Devices: kubelet.Devices{"a/vf": {"0000:0c:00.1"}}}
	app := holders.Holder{Name: "app", Devices: kubelet.Devices{"a/vf": {"0000:0c:00.1"}}}
	for _, found := range []holders.Holders{{init, app}, {app, init}} {
		units := found.ByUnit(func(_, id string) topology.Unit { return topology.UnitOfID(id) })
		if h := units.Of("a/vf", "0000:0c:00.1"); h == nil || h.Name != "app" {
			t.Errorf("the holder is %v", h)
		}
	}
}
