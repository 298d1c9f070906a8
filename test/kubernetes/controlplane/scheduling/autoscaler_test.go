// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/fleet"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
)

// TestAutoscaler shows the facts by which cluster-autoscaler decides. A pod that fits no NUMA node has the
// condition that makes cluster-autoscaler consider a pod. By counts an equal pod fits: the default scheduler,
// whose plugins cluster-autoscaler simulates, binds the pod, and the kubelet refuses the pod. The first pod
// waits for another node, which cluster-autoscaler therefore does not add.
func TestAutoscaler(t *testing.T) {
	eachVersion(t, func(t *testing.T, o plane.Options) {
		w := newArena(t, o, 2)
		w.patchNode(nodeName(1), `{"spec": {"unschedulable": true}}`)
		w.fragment(t, nodeName(0))

		create(t, w.client, sent("waiting", byTandem))
		wait(t, w.client, "waiting", func(p *v1.Pod) bool { return refusal(p) != "" })
		pod, err := w.client.CoreV1().Pods("default").Get(t.Context(), "waiting", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c := refused(pod)
		if c.Reason != v1.PodReasonUnschedulable || !strings.Contains(c.Message, "no NUMA node has 2") {
			t.Errorf("condition %s: %s", c.Reason, c.Message)
		}

		create(t, w.client, sent("counted", byDefault))
		wait(t, w.client, "counted", func(p *v1.Pod) bool { return p.Status.Reason == "TopologyAffinityError" })

		w.patchNode(nodeName(1), `{"spec": {"unschedulable": false}}`)
		wait(t, w.client, "waiting", func(p *v1.Pod) bool {
			return p.Status.Phase == v1.PodRunning && p.Spec.NodeName == nodeName(1)
		})
	})
}

// fragment has pods take three of the four pairs of each NUMA node.
func (w *world) fragment(t *testing.T, node string) {
	t.Helper()
	for numa, name := range []string{"left", "right"} {
		w.place(t, name, fleet.Wish{GPUs: 3, VFs: 3, Node: node})
		if at := w.numa(name); at != numa {
			t.Fatalf("pod %s is on NUMA node %d", name, at)
		}
	}
}

// sent is a pod with two pairs for a scheduler.
func sent(name string, to started) *v1.Pod {
	pod := scheduled(name, 2)
	pod.Spec.SchedulerName = to.name
	return pod
}
