// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// A device that fails again is told again, whatever many other devices have recovered meanwhile.
func TestManyRecoveries(t *testing.T) {
	s, c, outcomes := open(t, http.StatusCreated)
	close(c.hold)
	device := func(i int) coordination.Unsound {
		return coordination.Unsound{
			Container: kubelet.Container{Pod: kubelet.Pod{Namespace: "team", Name: "train-0"}, Name: "worker"},
			UID:       "uid-1", Resource: "amd.com/gpu", Device: fmt.Sprint(i), Health: "unhealthy", Reason: "x",
		}
	}
	tell := func(i int) string {
		s.Unsound([]coordination.Unsound{device(i)})
		e := <-c.events
		<-outcomes
		s.Unsound(nil)
		return e.Name
	}
	first := tell(0)
	for i := 1; i <= maxWaiting+1; i++ {
		tell(i)
	}
	if again := tell(0); again == first {
		t.Errorf("the second failure has the name of the first event, %s, and is not written", again)
	}
}
