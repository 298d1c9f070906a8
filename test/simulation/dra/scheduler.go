// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/apiserver"
)

// want is a request of a claim: a number of devices of a type.
type want struct {
	of    pool.Type
	count int
}

// fits reports whether a device can be allocated for a type.
func (w want) fits(device *resourceapi.Device) bool {
	of := pool.Type(attribute(device, pool.AttributeType))
	return of == w.of || of == pool.TypeGPUVF && (w.of == pool.TypeGPU || w.of == pool.TypePair)
}

// attribute returns an attribute of a device; "" for none.
func attribute(device *resourceapi.Device, name resourceapi.QualifiedName) string {
	if value := device.Attributes[name].StringValue; value != nil {
		return *value
	}
	return ""
}

// offer is the published pool of the node, less the devices of all claims, as the scheduler sees it.
type offer struct {
	devices []*resourceapi.Device
	taken   map[string]bool
	left    map[[2]string]int64 // counters, by set and name
}

// offer reads the published pool; nil while the pool is incomplete.
func (n *Node) offer() *offer {
	o := &offer{taken: map[string]bool{}, left: map[[2]string]int64{}}
	published := n.published()
	for _, slice := range published {
		at := slice.Spec.Pool
		if at.Generation != published[0].Spec.Pool.Generation || int(at.ResourceSliceCount) != len(published) {
			return nil
		}
		for _, set := range slice.Spec.SharedCounters {
			for name, counter := range set.Counters {
				o.left[[2]string{set.Name, name}] = counter.Value.Value()
			}
		}
		for i := range slice.Spec.Devices {
			o.devices = append(o.devices, &slice.Spec.Devices[i])
		}
	}
	for _, claim := range apiserver.List[*resourceapi.ResourceClaim](n.server) {
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.Driver == pool.Driver {
				o.taken[result.Device] = true
			}
		}
	}
	for _, device := range o.devices {
		if o.taken[device.Name] {
			o.consume(device)
		}
	}
	return o
}

func (o *offer) consume(device *resourceapi.Device) {
	o.taken[device.Name] = true
	for _, consumed := range device.ConsumesCounters {
		for name, counter := range consumed.Counters {
			o.left[[2]string{consumed.CounterSet, name}] -= counter.Value.Value()
		}
	}
}

// isFree reports whether a device can be allocated.
func (o *offer) isFree(device *resourceapi.Device) bool {
	for _, consumed := range device.ConsumesCounters {
		for name, counter := range consumed.Counters {
			if o.left[[2]string{consumed.CounterSet, name}] < counter.Value.Value() {
				return false
			}
		}
	}
	return !o.taken[device.Name] && !slices.ContainsFunc(device.Taints, func(t resourceapi.DeviceTaint) bool {
		return t.Effect == resourceapi.DeviceTaintEffectNoSchedule ||
			t.Effect == resourceapi.DeviceTaintEffectNoExecute
	})
}

// allocate takes the first devices that fit; false without enough.
func (o *offer) allocate(w want) (found []*resourceapi.Device, ok bool) {
	for _, device := range o.devices {
		if len(found) < w.count && w.fits(device) && o.isFree(device) {
			o.consume(device)
			found = append(found, device)
		}
	}
	return found, len(found) == w.count
}
