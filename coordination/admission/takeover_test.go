// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/device"
)

// After a takeover the kubelet can ask for one half before the plugin of the other half has announced its
// devices: the question waits, for a short time only.
func TestQuestionRightAfterATakeover(t *testing.T) {
	for name, joins := range map[string]bool{"the other plugin joins": true, "the other plugin is gone": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
				var saved savedState
				if err := json.Unmarshal(encoded(t, a.coordinator), &saved); err != nil {
					t.Fatal(err)
				}
				next := (&Coordinator{Config: a.coordinator.Config}).startAt(a.coordinator.current().tree, time.Now)
				if err := next.restore(saved, next.Log); err != nil {
					t.Fatal(err)
				}
				announce := func(resource string, kind device.Kind) {
					if err := next.Announce(resource, kind, device.Announcement{Devices: a.all[resource]}); err != nil {
						t.Error(err)
					}
				}
				announce(vfs, device.VF)
				if joins {
					time.AfterFunc(time.Millisecond, func() { announce(gpus, device.GPU) })
				}
				began := time.Now()
				_, why, err := next.prefer(t.Context(), asking.Question{
					Resource: vfs, Available: ids(a.all[vfs]), Size: 2,
				})
				history := next.history.All()
				pairs := history[len(history)-1].Choice.Pairs
				switch waited := time.Since(began); {
				case err != nil:
					t.Error(err)
				case joins && (waited != time.Millisecond || len(pairs) != 2):
					t.Errorf("answered after %s with the pairs %v: %s", waited, pairs, why)
				case !joins && (waited == 0 || waited > 100*time.Millisecond):
					t.Errorf("answered after %s", waited)
				}
				if !joins {
					time.Sleep(joinTime)
					began := time.Now()
					if _, _, err := next.prefer(t.Context(), asking.Question{
						Resource: vfs, Available: ids(a.all[vfs]), Size: 2,
					}); err != nil || time.Since(began) > 0 {
						t.Errorf("a question later is answered after %s: %v", time.Since(began), err)
					}
				}
			})
		})
	}
}
