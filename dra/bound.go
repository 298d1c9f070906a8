// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"maps"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/tandem-k8s/tandem/dra/pool"
)

// rebindLimit is the maximum time until the API server has the bound VFs. The kubelet waits for 45 s.
const rebindLimit = 20 * time.Second

// rebind publishes the VFs that claims actually hold, and waits until the API server has them: CNI plugins
// read there the VF of a pod immediately after the kubelet's answer.
func (d *Driver) rebind(ctx context.Context, bound map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, rebindLimit)
	defer cancel()
	names := maps.Clone(d.newest.get().Bound) // restores the values of released devices
	if err := d.anew(ctx); err != nil {
		return err
	}
	if names == nil {
		names = map[string]string{}
	}
	maps.Copy(names, bound)
	seen := map[string]string{}
	_, err := watchtools.UntilWithSync(ctx, d.ownSlices(), &resourceapi.ResourceSlice{}, nil,
		func(event watch.Event) (bool, error) {
			if slice, ok := event.Object.(*resourceapi.ResourceSlice); ok && event.Type != watch.Deleted {
				maps.Copy(seen, multusIDs(slice.Spec.Devices))
			}
			return d.shown(names, seen), nil
		})
	if err != nil {
		return fmt.Errorf("wait until the API server has which VFs are handed out: %w", err)
	}
	return nil
}

// shown reports whether the Multus attributes of devices match the current view, for the devices of that
// view.
func (d *Driver) shown(names, seen map[string]string) bool {
	for _, s := range d.newest.get().State.Pool.Slices {
		for name, id := range multusIDs(s.Devices) {
			if _, concerned := names[name]; concerned && seen[name] != id {
				return false
			}
		}
	}
	return true
}

// ownSlices lists and watches the published slices of the node.
func (d *Driver) ownSlices() cache.ListerWatcher {
	selector := fields.Set{
		resourceapi.ResourceSliceSelectorDriver:   pool.Driver,
		resourceapi.ResourceSliceSelectorNodeName: d.NodeName,
	}.String()
	slices := d.Client.ResourceV1().ResourceSlices()
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return slices.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return slices.Watch(ctx, o)
		},
	}, d.Client)
}

// multusIDs returns the Multus device IDs of devices, by name.
func multusIDs(devices []resourceapi.Device) map[string]string {
	ids := map[string]string{}
	for _, device := range devices {
		if id := device.Attributes[pool.AttributeMultusID].StringValue; id != nil {
			ids[device.Name] = *id
		}
	}
	return ids
}
