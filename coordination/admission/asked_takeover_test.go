// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"
)

// TestExplainAfterATakeoverInAQuestion: an Allocate whose question the server before has answered is a
// decision of its own, and changes none of another container.
func TestExplainAfterATakeoverInAQuestion(t *testing.T) {
	t.Parallel()
	a := told(t)
	owner, held := a.start("owner", gpus)
	second := a.pending("second", wish{1, 0}).Pod
	ids, _ := a.ask(gpus, 0, 1)
	a.takeOver() // after the last save of a server that stops
	a.take(second, gpus, ids)
	a.keep(second)
	for pod, devices := range map[string][]string{owner.Name: held, "second": ids} {
		decisions, err := a.coordinator.Explain(t.Context(), "team", pod, "")
		if err != nil || len(decisions) != 1 || decisions[0].GetAllocated()[0] != devices[0] {
			t.Errorf("%s with %v: %v, %v", pod, devices, decisions, err)
		}
	}
}
