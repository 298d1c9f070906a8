// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/test/server"
)

func TestAfterPod(t *testing.T) {
	r := start(t, server.Topology("a", 1, true))
	waiting := server.Pod("waiting", 4, 4)
	bound := func(pod *v1.Pod, node string) *v1.Pod {
		pod.Spec.NodeName = node
		return pod
	}
	for _, c := range []struct {
		name string
		gone *v1.Pod
		want fwk.QueueingHint
	}{
		{"with a GPU", bound(server.Pod("x", 1, 0), "a"), fwk.Queue},
		{"without devices", bound(server.Pod("x", 0, 0), "a"), fwk.QueueSkip},
		{"on a node without an object", bound(server.Pod("x", 1, 0), "b"), fwk.QueueSkip},
		{"never bound", server.Pod("x", 1, 0), fwk.QueueSkip},
	} {
		if got, err := r.plugin.afterPod(klog.Background(), waiting, c.gone, nil); err != nil || got != c.want {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}

// bind adds pods of a node to the scheduler's informer.
func (r *rig) bind(node string, pods ...*v1.Pod) {
	r.t.Helper()
	for _, p := range pods {
		p.Spec.NodeName = node
		if err := r.plugin.pods.Add(p); err != nil {
			r.t.Fatal(err)
		}
	}
}

// The hint skips no pod that Filter would accept: devices of ended pods are free for both.
func TestAfterObjectAsFilter(t *testing.T) {
	healthyAgain := server.Topology("a", 1, true)
	server.Hold(healthyAgain, "gone", "0-3", "0-3")
	healthyAgain.Spec.Resources[0].Unhealthy = "4"
	came := server.Topology("a", 1, true) // "comes" was admitted before "gone" ended
	server.Hold(came, "stays", "6-7", "6-7")
	server.Hold(came, "gone", "0-3", "0-3")
	server.Hold(came, "comes", "4-5", "4-5")
	for name, c := range map[string]struct {
		now  *v1alpha1.NodeTopology
		pods []*v1.Pod
		want fwk.QueueingHint
	}{
		"a GPU works again":  {healthyAgain, nil, fwk.Queue},
		"a pod was admitted": {came, []*v1.Pod{server.Pod("stays", 2, 2), server.Pod("comes", 2, 2)}, fwk.Queue},
		"nobody is gone": {came, []*v1.Pod{server.Pod("stays", 2, 2), server.Pod("gone", 4, 4)},
			fwk.QueueSkip},
		"a pod is on its way": {healthyAgain, []*v1.Pod{server.Pod("comes", 4, 4)}, fwk.Queue},
	} {
		r := start(t, c.now)
		r.bind("a", c.pods...)
		waiting := server.Pod("waiting", 4, 4)
		_, filtered := r.filter(waiting, on("a", c.pods...))
		hint, err := r.plugin.afterObject(klog.Background(), waiting, nil, r.plugin.objects.valid("a"))
		if err != nil || hint != c.want || filtered[0].IsSuccess() && hint == fwk.QueueSkip {
			t.Errorf("%s: hint %v, %v; Filter says %v", name, hint, err, filtered[0])
		}
	}
}

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

// TestRelaxedPod: a pod waits because it requires alignment, and its Event names the annotation. After its
// owner has relaxed the annotation, Filter accepts the pod, and the scheduler has to try it again. A plugin
// has to implement a hint for Pod/Update if an update of the refused pod can resolve the refusal (Pod in
// staging/src/k8s.io/kube-scheduler/framework/types.go).
func TestRelaxedPod(t *testing.T) {
	metrics.Register()
	ctx := t.Context()
	o := server.Topology("a", 1, false)
	o.ResourceVersion = "1"
	server.Hold(o, "held", "0", "1")
	held, pod := server.Pod("held", 1, 1), server.Pod("pod", 7, 7)
	held.Spec.NodeName = "a"
	pod.Spec.SchedulerName = "default-scheduler"
	pod.Annotations = map[string]string{intent.AlignmentKey: string(intent.Required)}
	s := &objectServer{watched: make(chan string, 10), objects: []*v1alpha1.NodeTopology{o}}
	client := fake.NewClientset(server.Node("a", 8), held)
	refused, bound := schedule(t, client, s)
	pods := client.CoreV1().Pods(pod.Namespace)
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	wait(t, refused, pod.Name)
	relaxed, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	relaxed.ResourceVersion = "2" // which the fake clientset leaves alone
	relaxed.Annotations[intent.AlignmentKey] = string(intent.Preferred)
	if _, err := pods.Update(ctx, relaxed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	wait(t, bound, pod.Name)
}
