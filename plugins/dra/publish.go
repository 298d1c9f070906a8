// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/dra/claims"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// publisher publishes the view in ResourceSlices.
type publisher struct {
	parts
	viewer *viewer

	again   system.Trigger // the published slices may be gone
	handing sync.WaitGroup // calls of the helper
}

// publishViews publishes the current view until ctx is done, after the cluster's features and the claims'
// devices are known. It skips intermediate and identical views.
func (p *publisher) publishViews(ctx context.Context, helper *kubeletplugin.Helper) error {
	var published resourceslice.DriverResources
	begun, again := false, false
	for {
		v, changed := p.newest.Watch()
		resources := p.driverResources(v)
		if v.isKnown() && (again || !begun || !reflect.DeepEqual(published, resources)) {
			published, begun = resources, true
			p.config.Log.Info("published", "devices", len(v.State.Pool.Devices), "slices", len(v.State.Pool.Slices),
				"counters", v.Gates.Counters, "taints", v.Gates.Taints)
			if err := p.handOver(ctx, helper, *published.DeepCopy()); err != nil {
				return err
			}
		}
		again = false
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-p.again:
			again = true
		}
	}
}

// handOver passes resources to the helper, which keeps them and modifies them when a field is dropped. The
// first call waits for the API server; only the end of the helper ends this wait, not ctx.
func (p *publisher) handOver(
	ctx context.Context, helper *kubeletplugin.Helper, resources resourceslice.DriverResources,
) error {
	handed := make(chan error, 1)
	p.handing.Go(func() { handed <- helper.PublishResources(ctx, resources) })
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

// driverResources returns the published data of a view: one pool with the name of the node. A draining driver
// publishes none, which removes existing slices.
func (p *publisher) driverResources(v *view) resourceslice.DriverResources {
	if p.config.Drain {
		return resourceslice.DriverResources{}
	}
	var slices []resourceslice.Slice
	for _, s := range v.State.Pool.Slices {
		slices = append(slices, resourceslice.Slice{Devices: s.Devices, SharedCounters: s.SharedCounters})
	}
	if len(slices) == 0 { // a pool without devices shows that the driver is running
		slices = append(slices, resourceslice.Slice{})
	}
	return resourceslice.DriverResources{
		Pools: map[string]resourceslice.Pool{p.config.NodeName: {Slices: slices}},
	}
}

// shownLimit is the maximum time until the API server has the VFs of prepared claims. The kubelet waits for
// 45 s.
const shownLimit = 20 * time.Second

// awaitShown waits until the API server shows no other VF for the devices of prepared claims: CNI plugins
// (Multus) read there the VF of a pod immediately after the kubelet's answer. After an error the kubelet does
// not get the names of the CDI devices: a repeated call finds the claims recorded, and the end of the pod
// unprepares them.
func (p *publisher) awaitShown(ctx context.Context, prepared []claims.Claim) error {
	vfs := map[string]string{} // by device; a GPU alone is published with an ID of its own
	for _, c := range prepared {
		for _, d := range c.Devices {
			if !d.Admin && len(d.VFs) == 1 && len(d.GPUs) <= 1 {
				vfs[d.Device] = d.VFs[0]
			}
		}
	}
	if len(vfs) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, shownLimit)
	defer cancel()
	published := slicesOf(p.config.Client, p.config.NodeName)
	shown, err := shownVFs(ctx, published)
	isOther := func(device string) bool { return shown[device] != "" && shown[device] != vfs[device] }
	showsNoOther := func() bool { return !slices.ContainsFunc(slices.Collect(maps.Keys(vfs)), isOther) }
	if err == nil && !showsNoOther() {
		p.viewer.changed.Fire() // the claims are to be published
		_, err = watchtools.UntilWithSync(ctx, published, &resourceapi.ResourceSlice{}, nil,
			func(event watch.Event) (bool, error) {
				if slice, ok := event.Object.(*resourceapi.ResourceSlice); ok && event.Type != watch.Deleted {
					maps.Copy(shown, multusIDs(slice.Spec.Devices))
				}
				return showsNoOther(), nil
			})
	}
	if err != nil {
		return fmt.Errorf("publish which VFs are handed out: wait until the API server has them: %w", err)
	}
	return nil
}

// slicesOf lists and watches the published slices of a node.
func slicesOf(client kubernetes.Interface, nodeName string) cache.ListerWatcher {
	selector := fields.Set{
		resourceapi.ResourceSliceSelectorDriver:   pool.Driver,
		resourceapi.ResourceSliceSelectorNodeName: nodeName,
	}.String()
	slices := client.ResourceV1().ResourceSlices()
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return slices.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return slices.Watch(ctx, o)
		},
	}, client)
}

// shownVFs returns the Multus device IDs of published devices, by name.
func shownVFs(ctx context.Context, published cache.ListerWatcher) (map[string]string, error) {
	list, err := cache.ToListerWithContext(published).ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	ids := map[string]string{}
	if list, ok := list.(*resourceapi.ResourceSliceList); ok {
		for _, slice := range list.Items {
			maps.Copy(ids, multusIDs(slice.Spec.Devices))
		}
	}
	return ids, nil
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

// view is the state of the node at one moment, and the published data. It is immutable.
type view struct {
	observation

	State    claims.State
	wasSound map[string]bool // of pool.Options
}

// observation is the input of a view, except for the machine.
type observation struct {
	Gates    features
	prepared kubelet.Reading[[]claims.Claim] // of readClaims, for the machine of the view
	looks    int                             // number of looks at the machine
	holders  map[string]string               // holders without a claim, by device ID
	// unread is the reason for unknown holders, which prevents publish and prepare; nil if known
	unread error
}

// isEqual reports whether two observations give the same view.
func (o observation) isEqual(p observation) bool {
	return o.looks == p.looks && o.Gates == p.Gates && maps.Equal(o.holders, p.holders) &&
		reflect.DeepEqual(o.claims(), p.claims()) &&
		fmt.Sprint(o.unread) == fmt.Sprint(p.unread)
}

// claims returns the prepared claims; none while they are unknown, when nothing is published.
func (o observation) claims() []claims.Claim {
	known, err := o.prepared.Get()
	if err != nil {
		return nil
	}
	return known
}

// newView builds a view of a machine, whose devices have no holders yet. The options contain the
// configuration of the pool.
func newView(machine pool.Machine, o observation, options pool.Options) *view {
	machine = withHolders(machine, o.holders)
	options.Counters, options.Taints = o.Gates.Counters, o.Gates.Taints
	options.Bound, options.InUse = claims.Bound(o.claims())
	return &view{
		observation: o, wasSound: options.WasSound,
		State: claims.State{Machine: machine, Pool: pool.Build(machine, options), Unread: o.unread},
	}
}

// listSound returns the VFs that were healthy when they were published, by ID.
func (v *view) listSound() map[string]bool {
	sound := map[string]bool{}
	for _, vf := range v.State.Machine.VFs {
		sound[vf.ID] = v.isKnown() && (vf.Fault == "" || v.wasSound[vf.ID])
	}
	return sound
}

// isKnown reports whether a view can be published.
func (v *view) isKnown() bool { return v.Gates.Known && v.unread == nil }

// listNotes returns remarks about the published data, for people.
func (v *view) listNotes() []string {
	notes := slices.Concat(v.Gates.listNotes(), v.State.Pool.Notes)
	if v.unread != nil {
		notes = append(notes, fmt.Sprintf("nothing is published: %v", v.unread))
	}
	return notes
}
