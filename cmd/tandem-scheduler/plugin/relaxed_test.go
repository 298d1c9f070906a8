// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/test/server"
)

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
