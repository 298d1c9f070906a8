package admission

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/tandem-k8s/tandem/coordination/device"
)

// The kubelet can ask before the announcement of the plugin that it asks has arrived.
func TestQuestionWaitsForTheAnnouncement(t *testing.T) {
	a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
	delete(a.coordinator.current().ledger.resources, gpus)
	q := question{resource: gpus, available: []string{a.all[gpus][0].ID, a.all[gpus][1].ID}, size: 1}
	synctest.Test(t, func(t *testing.T) {
		if _, _, err := a.coordinator.prefer(t.Context(), q); err == nil {
			t.Error("a question about what nobody announces is answered")
		}
		answered := make(chan []string, 1)
		go func() {
			ids, _, err := a.coordinator.prefer(t.Context(), q)
			if err != nil {
				t.Error(err)
			}
			answered <- ids
		}()
		synctest.Wait()
		if len(answered) > 0 {
			t.Error("answered before the announcement")
		}
		if err := a.coordinator.Announce(gpus, device.GPU, device.Announcement{Devices: a.all[gpus]}); err != nil {
			t.Error(err)
		}
		if ids := <-answered; len(ids) != 1 {
			t.Errorf("answer %v", ids)
		}
	})
}

// What the flood cannot show: the ledger does not grow without end.
func TestLedgerIsBounded(t *testing.T) {
	a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
	for i := range 2 * MaxResources {
		_ = a.coordinator.Announce(fmt.Sprint("resource-", i), device.VF, device.Announcement{})
		a.allocated(fmt.Sprint("other-", i), []string{"x"})
	}
	for i := range 2 * MaxDevices {
		a.allocated("many", []string{fmt.Sprint(i)})
	}
	l := a.coordinator.current().ledger
	if len(l.resources) > MaxResources || len(l.holders) > MaxResources || len(l.holders["many"]) > MaxDevices {
		t.Errorf("%d resources, %d with holders, %d devices", len(l.resources), len(l.holders),
			len(l.holders["many"]))
	}
}
