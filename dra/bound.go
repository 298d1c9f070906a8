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

// rebindLimit is how long it may take until the API server has what is bound. The kubelet waits for 45 s.
const rebindLimit = 20 * time.Second

// rebind publishes which VF is handed out in the place of the one that a device names, and waits until the API
// server has it: CNI plugins read there which VF a pod gets, as soon as the kubelet has its answer.
func (d *Driver) rebind(ctx context.Context, bound map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, rebindLimit)
	defer cancel()
	want, err := d.awaitBound(ctx, bound)
	if err != nil {
		return err
	}
	selector := fields.Set{
		resourceapi.ResourceSliceSelectorDriver:   pool.Driver,
		resourceapi.ResourceSliceSelectorNodeName: d.NodeName,
	}.String()
	slices := d.Client.ResourceV1().ResourceSlices()
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return slices.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return slices.Watch(ctx, o)
		},
	}
	shown := func(event watch.Event) (bool, error) {
		if slice, ok := event.Object.(*resourceapi.ResourceSlice); ok && event.Type != watch.Deleted {
			for name, id := range multusIDs(slice.Spec.Devices) {
				if want[name] == id {
					delete(want, name)
				}
			}
		}
		return len(want) == 0, nil
	}
	if len(want) == 0 {
		return nil
	}
	if _, err := watchtools.UntilWithSync(ctx, cache.ToListWatcherWithWatchListSemantics(source, d.Client),
		&resourceapi.ResourceSlice{}, nil, shown); err != nil {
		return fmt.Errorf("wait until the API server has %d devices with the VFs that are handed out for them: %w",
			len(want), err)
	}
	return nil
}

// awaitBound waits until what is bound is in the view that is published. It returns what Multus reads there,
// by device, of those that are or were bound.
func (d *Driver) awaitBound(ctx context.Context, bound map[string]string) (map[string]string, error) {
	before := d.newest.get().Bound
	d.wake()
	for {
		v, changed := d.newest.watch()
		if maps.Equal(v.Bound, bound) {
			want := map[string]string{}
			for _, s := range v.State.Pool.Slices {
				for name, id := range multusIDs(s.Devices) {
					if before[name] != "" || bound[name] != "" {
						want[name] = id
					}
				}
			}
			return want, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for what is bound: %w", ctx.Err())
		case <-changed:
		}
	}
}

// multusIDs are the IDs that Multus reads of devices, by name.
func multusIDs(devices []resourceapi.Device) map[string]string {
	ids := map[string]string{}
	for _, device := range devices {
		if id := device.Attributes[pool.AttributeMultusID].StringValue; id != nil {
			ids[device.Name] = *id
		}
	}
	return ids
}
