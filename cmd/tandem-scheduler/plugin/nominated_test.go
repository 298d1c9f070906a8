// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"

	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-k8s/tandem/test/server"
)

// TestAfterNominatedPod: Filter counts a pod that preemption has nominated to a node, because the framework
// adds the pod to the NodeInfo. When the pod is deleted, or nominated to another node, the scheduler sends
// EventAssignedPodDelete with this pod, which has no spec.nodeName (deletePodFromSchedulingQueue and
// updatePodInSchedulingQueue in pkg/scheduler/eventhandlers.go). Filter would now accept the refused pod.
func TestAfterNominatedPod(t *testing.T) {
	r := start(t, server.Topology("a", 1, true))
	waiting, nominated := server.Pod("waiting", 8, 8), server.Pod("nominated", 1, 1)
	nominated.Status.NominatedNodeName = "a"
	if _, got := r.filter(waiting, on("a", nominated)); got[0].IsSuccess() {
		t.Fatal("Filter ignores the nominated pod")
	}
	if _, got := r.filter(waiting, on("a")); !got[0].IsSuccess() {
		t.Fatalf("Filter without the nominated pod: %v", got[0])
	}
	got, err := r.plugin.afterPod(klog.Background(), waiting, nominated, nil)
	if err != nil || got != fwk.Queue {
		t.Errorf("after the nominated pod's deletion: %v, %v; want %v", got, err, fwk.Queue)
	}
}
