// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/fleet"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
)

// TestKueue has two Jobs in a queue of Kueue's for the pairs of two nodes: two pods with eight pairs, and
// four pods with four. Kueue counts what is in its queue. So it starts the first Job while a pod that is in
// no queue has a pair on one of the nodes; the Job's pod for that node waits, is not refused, and starts with
// all its pairs when the other one is gone. The second Job is suspended until the first has ended. No pod
// goes to the third node, which has another label than the queue's flavor.
func TestKueue(t *testing.T) {
	eachVersion(t, func(t *testing.T, o plane.Options) {
		q := startQueue(t, o)
		outside := fleet.Wish{GPUs: 1, VFs: 1, Life: 20 * time.Second, Node: "node-0001"}
		if err := q.nodes.Create(t.Context(), "outside", outside); err != nil {
			t.Fatal(err)
		}
		q.wait("outside", 1, hasStarted)
		q.create("first", 2, 8)
		q.wait("first", 1, func(p *v1.Pod) bool { return p.Spec.NodeName == "" && refusal(p) != "" })
		q.create("second", 4, 4)
		q.wait("first", 2, hasStarted)
		q.wait("second", 4, hasStarted)
		ended, started := q.job("first").Status.CompletionTime, q.job("second").Status.StartTime
		if ended == nil || started == nil || started.Before(ended) {
			t.Errorf("the second job started %v, the first one ended %v", started, ended)
		}
	})
}

func hasStarted(p *v1.Pod) bool { return p.Status.Phase != v1.PodPending }
