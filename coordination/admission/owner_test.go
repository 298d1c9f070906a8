// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"
	"time"
)

// Without a request source the checkpoint has only the UID of the newest pod. Status names the pod all the
// same, also after a List between the halves has shown the owner.
func TestOwnerOfTheNewestPod(t *testing.T) {
	t.Parallel()
	for name, pause := range map[string]time.Duration{"at once": 0, "after a moment": time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
			a.keepCheckpoint()
			pod := a.add("train-0")
			a.serve(pod, gpus, 0, 2)
			a.now = a.now.Add(pause)
			a.serve(pod, vfs, 0, 2)
			a.keep(pod)
			held := 0
			for _, r := range a.coordinator.Resources() {
				for _, d := range r.GetDevices() {
					if !d.GetAllocated() {
						continue
					}
					if held++; d.GetOwner().GetPod() != pod.Name {
						t.Errorf("%s has the owner %v", d.GetDevice().GetId(), d.GetOwner())
					}
				}
			}
			if held != 4 {
				t.Errorf("%d devices are held", held)
			}
		})
	}
}
