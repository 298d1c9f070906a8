// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"testing"
)

// TestDecisionsOnTheWayBack: the version before, test/before, rejects all saved decisions if one message has
// a field that it does not know: its Owner has no UID. It reads the container and the UID beside the message.
func TestDecisionsOnTheWayBack(t *testing.T) {
	t.Parallel()
	a := told(t)
	a.start("owner", gpus)
	var saved struct {
		Decisions []struct {
			Decision struct{ Container map[string]string }
		}
	}
	if err := json.Unmarshal(encoded(t, a.coordinator), &saved); err != nil || len(saved.Decisions) != 1 {
		t.Fatal(saved, err)
	}
	known := map[string]bool{"namespace": true, "pod": true, "container": true}
	for key := range saved.Decisions[0].Decision.Container {
		if !known[key] {
			t.Errorf("container.%s: the version before loses its history of decisions", key)
		}
	}
}
