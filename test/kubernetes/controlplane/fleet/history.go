// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/verdict"
)

// Arrival is a pod that was bound to a node.
type Arrival struct {
	Name      string
	UID       types.UID
	Devices   int64 // number of requested GPUs and VFs
	Scheduler string
	Bound     time.Time // time at the node
	Admitted  bool
	Ended     time.Time // zero while the pod runs
}

// event is an event at a kubelet: a pod was admitted or refused, or has ended.
type event struct {
	arrival *Arrival
	pod     *v1.Pod
	end     bool
}

// Replay returns the verdict on a pod without some of the earlier arrivals. Must be called after Run.
func (f *Fleet) Replay(p Pod, without func(Arrival) bool) verdict.Verdict {
	n := f.nodes[p.Node]
	state := n.known.State(nobody)
	for _, e := range n.history {
		switch {
		case e.end:
			state.Remove(e.arrival.UID)
		case e.arrival.UID == p.UID:
			return state.Admit(e.pod)
		case !without(*e.arrival):
			state.Admit(e.pod)
		}
	}
	return verdict.Verdict{Reason: "the pod has not come"}
}

// Before returns the last events at a kubelet up to its decision on a pod, one per line. Note adds text about
// each arrival. Must be called after Run.
func (f *Fleet) Before(p Pod, note func(types.UID) string) string {
	const most = 24
	var lines []string
	for _, e := range f.nodes[p.Node].history {
		came, what := e.arrival, "refuses"
		at := came.Bound
		switch {
		case e.end:
			what, at = "is rid of", came.Ended
		case came.Admitted:
			what = "admits"
		}
		lines = append(lines, fmt.Sprintf("\t%s %s %s: %d devices; %s", at.Format("15:04:05.000"), what, came.Name,
			came.Devices, note(came.UID)))
		if !e.end && came.UID == p.UID {
			break
		}
	}
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
