package admission

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/ledger"
)

// The kubelet can ask before the announcement of the plugin that it asks has arrived.
func TestQuestionWaitsForTheAnnouncement(t *testing.T) {
	a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
	a.coordinator.startAt(a.coordinator.current().tree, a.coordinator.now)
	q := asking.Question{Resource: gpus, Available: []string{a.all[gpus][0].ID, a.all[gpus][1].ID}, Size: 1}
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
	for i := range 2 * ledger.MaxResources {
		_ = a.coordinator.Announce(fmt.Sprint("resource-", i), device.VF, device.Announcement{})
		a.allocated(fmt.Sprint("other-", i), []string{"x"})
	}
	for i := range 2 * ledger.MaxDevices {
		a.allocated("many", []string{fmt.Sprint(i)})
	}
	l := a.coordinator.current().ledger
	holding := map[string]bool{}
	for _, held := range l.Allocations() {
		for name := range held.Devices {
			holding[name] = true
		}
	}
	many := a.coordinator.heldOf("many")
	if len(l.Resources()) > ledger.MaxResources || len(holding) > ledger.MaxResources ||
		len(many) > ledger.MaxDevices {
		t.Errorf("%d resources, %d with holders, %d devices", len(l.Resources()), len(holding), len(many))
	}
}
