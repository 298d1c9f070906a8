// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"context"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/fleet"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
	"github.com/tandem-k8s/tandem/test/server"
)

// world is a control plane with nodes that run until the test ends.
type world struct {
	*testing.T
	plane  *plane.Plane
	client kubernetes.Interface
	nodes  *fleet.Fleet
	mu     sync.Mutex
	came   map[string]fleet.Pod // by job
	wrong  func(fleet.Pod) bool // about a pod that has come; nil for nothing
}

func newWorld(t *testing.T, o plane.Options, options fleet.Options, wrong func(fleet.Pod) bool) *world {
	t.Helper()
	w := &world{T: t, came: map[string]fleet.Pod{}, wrong: wrong}
	w.plane, w.client = start(t, o)
	w.nodes = startFleet(t, w.client, options, w.told)
	return w
}

// startFleet starts nodes that end with the test.
func startFleet(
	t *testing.T, client kubernetes.Interface, options fleet.Options, told func(fleet.Pod),
) *fleet.Fleet {
	t.Helper()
	nodes, err := fleet.New(t.Context(), client, options, told)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- nodes.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return nodes
}

func (w *world) told(p fleet.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.came[p.Job] = p
	if w.wrong != nil && w.wrong(p) {
		w.Errorf("%s on %s: %+v", p.Job, p.Node, p.Verdict)
	}
}

// isPart reports whether a pod was refused, or has not all its pairs.
func isPart(p fleet.Pod) bool { return !p.Verdict.Admitted || p.Verdict.Pairs != p.Verdict.Wanted }

// numa is the NUMA node of a pod's GPUs.
func (w *world) numa(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return 2 * w.came[name].Verdict.Containers[0].Devices[server.GPU][0] / server.GPUs
}

// place creates a pod on a node, and waits until the pod runs.
func (w *world) place(t *testing.T, name string, wish fleet.Wish) {
	t.Helper()
	if err := w.nodes.Create(t.Context(), name, wish); err != nil {
		t.Fatal(err)
	}
	wait(t, w.client, name, func(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning })
}

// patchNode changes a node.
func (w *world) patchNode(name, patch string) {
	w.Helper()
	if _, err := w.client.CoreV1().Nodes().Patch(w.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

// scheduled is a pod that asks for pairs and is to be scheduled once.
func scheduled(name string, pairs int) *v1.Pod {
	pod := server.Pod(name, pairs, pairs)
	pod.UID = "" // the API server gives it one
	pod.Labels = map[string]string{"test.tandem.dev/job": name}
	pod.Spec.RestartPolicy = v1.RestartPolicyNever
	return pod
}

func create(t *testing.T, client kubernetes.Interface, pod *v1.Pod) {
	t.Helper()
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// refused is the condition that a pod finds no node.
func refused(p *v1.Pod) (c v1.PodCondition) {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			return c
		}
	}
	return c
}

// refusal is why a pod finds no node.
func refusal(p *v1.Pod) string { return refused(p).Message }

// wait waits until a pod is as it should be.
func wait(t *testing.T, client kubernetes.Interface, name string, satisfied func(*v1.Pod) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for seen := new(v1.Pod); ; {
		pod, err := client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			seen = pod
		}
		if satisfied(seen) {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("pod %s on %q is %s, %q; %v", name, seen.Spec.NodeName, seen.Status.Phase, refusal(seen), err)
		}
	}
}
