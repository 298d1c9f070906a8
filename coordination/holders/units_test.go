// SPDX-License-Identifier: Apache-2.0

package holders_test

import (
	"testing"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
)

// A container with a unit excludes other containers from the unit, whatever the names; the containers of
// replicas share the unit, and exclude who wants the unit alone. A GPU and its MIG devices, which a container
// has from before the GPU was repartitioned, exclude each other; MIG devices of one GPU do not, nor
// partitions of an AMD GPU, nor a function and its sub-function.
func TestByUnit(t *testing.T) {
	t.Parallel()
	const vf, replica, another = "0000:0c:00.1", "0000:0c:00.1::0", "0000:0c:00.1::1"
	const gpu, mig = "0000:81:00.0", "0000:81:00.0/7-0"
	const part, sub = "0000:81:00.0/3", "0000:81:00.0/mlx5_core.sf.4"
	for _, c := range []struct {
		has             string // under the name old
		resource, id    string // in question
		held, elsewhere bool
	}{
		{vf, "old", vf, true, false},
		{vf, "new", vf, true, true},
		{vf, "old", "0000:0c:00.2", false, false},
		{vf, "shared", replica, true, true},
		{replica, "new", vf, true, true},
		{replica, "old", replica, true, false},
		{replica, "old", another, false, false},
		{replica, "shared", replica, false, false},

		{gpu, "new", mig, true, true},
		{gpu, "new", mig + "::1", true, true},
		{gpu + "::0", "new", mig, true, true},
		{mig, "new", gpu, true, true},
		{mig + "::1", "new", gpu, true, true},
		{mig, "new", gpu + "::0", true, true},
		{mig, "new", gpu + "/8-0", false, false},
		{mig, "new", "0000:82:00.0", false, false},
		{gpu, "new", "0000:82:00.0/7-0", false, false},
		{gpu, "new", part, false, false},
		{part, "new", gpu, false, false},
		{gpu, "new", sub, false, false},
		{sub, "new", gpu, false, false},
	} {
		found := holders.Holders{{UID: "uid", Name: "main", Devices: kubelet.Devices{"old": {c.has}}}}
		units := found.ByUnit(func(_, id string) topology.Unit { return topology.UnitOfID(id) })
		if h := units.Of(c.resource, c.id); (h != nil) != c.held || h != nil && h.UID != "uid" {
			t.Errorf("%s is held: holder of %s %s is %v", c.has, c.resource, c.id, h)
		}
		held, elsewhere := units.Elsewhere(c.resource, c.id)
		if elsewhere != c.elsewhere || elsewhere && (held.Resource != "old" || held.ID != c.has) {
			t.Errorf("%s is held: %s %s is held elsewhere: %t, as %s %s", c.has, c.resource, c.id, elsewhere,
				held.Resource, held.ID)
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
