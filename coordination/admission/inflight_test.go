// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// The kubelet forgets the devices of an Allocate that is open while PodResources is listed: then it is not.
func TestNoListWhileAnAllocateIsOpen(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, "oci-mi300x-derived", 4, false, 1)
	a.keepCheckpoint()
	look, looks := sourcesOf(a.coordinator).look, 0
	sourcesOf(a.coordinator).look = func(ctx context.Context) (kubelet.View, error) {
		looks++
		return look(ctx)
	}
	a.add("pod")
	a.coordinator.reader.inFlight.addAllocate(vfs, []string{"0000:0c:00.1"}) // of a pod worker
	a.ask(gpus, 0, 1)
	if looks > 0 {
		t.Error("PodResources was listed")
	}
	a.coordinator.reader.inFlight.endAllocate(vfs, []string{"0000:0c:00.1"}, false)
	a.ask(gpus, 0, 1)
	if looks != 1 {
		t.Errorf("%d looks after the Allocate has returned", looks)
	}
	// the end is reported to another server
	a.coordinator.reader.inFlight.addAllocate(vfs, []string{"0000:0c:00.1"})
	a.announce()
	a.ask(gpus, 0, 1)
	if looks != 2 {
		t.Errorf("%d looks after the plugin has joined anew", looks)
	}
	a.coordinator.reader.inFlight.addAllocate(vfs, []string{"0000:0c:00.1"}) // its plugin dies
	a.now = a.now.Add(2 * time.Second)
	a.ask(gpus, 0, 1)
	if looks != 3 {
		t.Errorf("%d looks long after an Allocate that never returned", looks)
	}
}
