// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/fleet"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
)

// TestAutoscaler shows the facts by which cluster-autoscaler decides. A pod that fits no NUMA node has the
// condition that makes cluster-autoscaler consider a pod. By counts an equal pod fits: the default scheduler,
// whose plugins cluster-autoscaler simulates, binds the pod, and the kubelet refuses the pod. The first pod
// waits for another node, which cluster-autoscaler therefore does not add.
func TestAutoscaler(t *testing.T) {
	eachVersion(t, func(t *testing.T, o plane.Options) {
		a := newArena(t, o, 2)
		a.cordon(t, nodeName(1), true)
		a.fragment(t, nodeName(0))

		create(t, a.client, sent("waiting", byTandem))
		wait(t, a.client, "waiting", func(p *v1.Pod) bool { return refusal(p) != "" })
		pod, err := a.client.CoreV1().Pods("default").Get(t.Context(), "waiting", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got, message := reason(pod), refusal(pod)
		if got != v1.PodReasonUnschedulable || !strings.Contains(message, "no NUMA node has 2") {
			t.Errorf("condition %s: %s", got, message)
		}

		create(t, a.client, sent("counted", byDefault))
		wait(t, a.client, "counted", func(p *v1.Pod) bool { return p.Status.Reason == "TopologyAffinityError" })

		a.cordon(t, nodeName(1), false)
		wait(t, a.client, "waiting", func(p *v1.Pod) bool {
			return p.Status.Phase == v1.PodRunning && p.Spec.NodeName == nodeName(1)
		})
	})
}

// fragment has pods take three of the four pairs of each NUMA node.
func (a *arena) fragment(t *testing.T, node string) {
	t.Helper()
	for numa, name := range []string{"left", "right"} {
		if err := a.nodes.Create(t.Context(), name, fleet.Wish{GPUs: 3, VFs: 3, Node: node}); err != nil {
			t.Fatal(err)
		}
		wait(t, a.client, name, func(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning })
		if at := a.numa(name); at != numa {
			t.Fatalf("pod %s is on NUMA node %d", name, at)
		}
	}
}

// cordon excludes a node from scheduling, or ends that.
func (a *arena) cordon(t *testing.T, node string, on bool) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec": {"unschedulable": %t}}`, on)
	_, err := a.client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// sent is a pod with two pairs for a scheduler.
func sent(name string, to started) *v1.Pod {
	pod := scheduled(name, 2)
	pod.Spec.SchedulerName = to.name
	return pod
}

// reason is the reason of the condition that a pod finds no node.
func reason(p *v1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			return c.Reason
		}
	}
	return ""
}
