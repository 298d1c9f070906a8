// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// publish publishes the current view until ctx is done, after the cluster's features and the claims' devices
// are known. It skips intermediate and identical views.
func (d *Driver) publish(ctx context.Context, helper *kubeletplugin.Helper) error {
	var published resourceslice.DriverResources
	begun, again := false, false
	for {
		v, changed := d.newest.watch()
		resources := d.resources(v)
		if v.isKnown() && (again || !begun || !reflect.DeepEqual(published, resources)) {
			published, begun = resources, true
			d.Log.Info("publish", "devices", len(v.State.Pool.Devices), "slices", len(v.State.Pool.Slices),
				"counters", v.Gates.Counters, "taints", v.Gates.Taints)
			if err := d.hand(ctx, helper, *published.DeepCopy()); err != nil {
				return err
			}
		}
		again = false
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-d.again:
			again = true
		}
	}
}

// hand passes resources to the helper, which keeps them and modifies them when a field is dropped. The first
// call waits for the API server; only the end of the helper ends this wait, not ctx.
func (d *Driver) hand(
	ctx context.Context, helper *kubeletplugin.Helper, resources resourceslice.DriverResources,
) error {
	handed := make(chan error, 1)
	d.handing.Go(func() { handed <- helper.PublishResources(ctx, resources) })
	select {
	case <-ctx.Done():
		return nil
	case err := <-handed:
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("publish the node's devices: %w", err)
		}
		return nil
	}
}

// resources returns the published data of a view: one pool with the name of the node. A draining driver
// publishes none, which removes existing slices.
func (d *Driver) resources(v *view) resourceslice.DriverResources {
	if d.Drain {
		return resourceslice.DriverResources{}
	}
	var slices []resourceslice.Slice
	for _, s := range v.State.Pool.Slices {
		slices = append(slices, resourceslice.Slice{Devices: s.Devices, SharedCounters: s.SharedCounters})
	}
	if len(slices) == 0 { // a pool without devices shows that the driver is running
		slices = append(slices, resourceslice.Slice{})
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{d.NodeName: {Slices: slices}}}
}
