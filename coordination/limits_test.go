package coordination

import (
	"testing"
	"testing/synctest"
)

// The kubelet can ask before the announcement of the plugin that it asks has arrived.
func TestQuestionWaitsForTheAnnouncement(t *testing.T) {
	a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
	delete(a.coordinator.ledger.resources, gpus)
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
		if err := a.coordinator.announce(gpus, GPU, Announcement{Devices: a.all[gpus]}); err != nil {
			t.Error(err)
		}
		if ids := <-answered; len(ids) != 1 {
			t.Errorf("answer %v", ids)
		}
	})
}
