// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"log/slog"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// TestStatusIsWrittenOnce: a status is written unless the claim has it, with everything in it.
func TestStatusIsWrittenOnce(t *testing.T) {
	t.Parallel()
	device := func(change func(*resourceapi.AllocatedDeviceStatus)) resourceapi.AllocatedDeviceStatus {
		d := resourceapi.AllocatedDeviceStatus{
			Driver: pool.Driver, Pool: "node", Device: "pair", Conditions: []metav1.Condition{{Type: "Ready"}},
			Data:        &runtime.RawExtension{Raw: []byte(`{"gpu":"a"}`)},
			NetworkData: &resourceapi.NetworkDeviceData{InterfaceName: "eth1"},
		}
		if change != nil {
			change(&d)
		}
		return d
	}
	for name, c := range map[string]struct {
		change func(*resourceapi.AllocatedDeviceStatus)
		queued int
	}{
		"the same":          {nil, 0},
		"another driver":    {func(d *resourceapi.AllocatedDeviceStatus) { d.Driver = "example.com" }, 1},
		"another device":    {func(d *resourceapi.AllocatedDeviceStatus) { d.Device = "vf" }, 1},
		"another netdev":    {func(d *resourceapi.AllocatedDeviceStatus) { d.NetworkData = nil }, 1},
		"without condition": {func(d *resourceapi.AllocatedDeviceStatus) { d.Conditions = nil }, 1},
		"without data":      {func(d *resourceapi.AllocatedDeviceStatus) { d.Data = nil }, 1},
		"other data":        {func(d *resourceapi.AllocatedDeviceStatus) { d.Data = &runtime.RawExtension{} }, 1},
	} {
		s := newStatuses(fake.NewClientset(), slog.New(slog.DiscardHandler))
		claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}
		claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{device(c.change)}
		s.queueStatus(claim, []resourceapi.AllocatedDeviceStatus{device(nil)})
		if got := s.queue.Len(); got != c.queued {
			t.Errorf("%s: queued %d, want %d", name, got, c.queued)
		}
		s.dropStatus("uid")
		if len(s.due) > 0 {
			t.Errorf("%s: the status of a claim that is released is still due", name)
		}
		s.queue.ShutDown()
	}
}
