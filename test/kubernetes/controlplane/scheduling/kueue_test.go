// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/fleet"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/manifest"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
	"github.com/tandem-k8s/tandem/test/server"
)

// TestKueue has two Jobs in a queue of Kueue's for the pairs of two nodes: two pods with eight pairs, and
// four pods with four. Kueue counts what is in its queue. So it starts the first Job while a pod that is in
// no queue has a pair on one of the nodes; the Job's pod for that node waits, is not refused, and starts with
// all its pairs when the other one is gone. The second Job is suspended until the first has ended. No pod
// goes to the third node, which has another label than the queue's flavor.
func TestKueue(t *testing.T) {
	eachVersion(t, func(t *testing.T, o plane.Options) {
		q := startQueue(t, o)
		q.place(t, "outside", fleet.Wish{GPUs: 1, VFs: 1, Life: 20 * time.Second, Node: nodeName(1)})
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

// queue is a queue of Kueue's before tandem-scheduler and three nodes. The kubelets have to refuse nothing,
// and every pod has to get all its pairs on a node with the flavor's label.
type queue struct{ *world }

// pairsPerNUMA are what the nodes' labels say.
var pairsPerNUMA = map[string]string{"node-0000": "4", "node-0001": "4", "node-0002": "2"}

func startQueue(t *testing.T, o plane.Options) *queue {
	t.Helper()
	wrong := func(p fleet.Pod) bool { return isPart(p) || pairsPerNUMA[p.Node] != "4" }
	q := &queue{newWorld(t, o, fleet.Options{Nodes: len(pairsPerNUMA), VFs: 1}, wrong)}
	for node, pairs := range pairsPerNUMA {
		q.patchNode(node, fmt.Sprintf(`{"metadata": {"labels": {"tandem.dev/pairs-per-numa": %q}}}`, pairs))
	}
	q.plane.StartControllers("job-controller")
	choice{schedulers: []started{byTandem}}.start(q.plane)
	q.plane.StartKueue(filepath.Join(o.Programs, "kueue", "config", "default"))
	if err := manifest.ApplyFile(t.Context(), q.plane.Admin(), "testdata/kueue.yaml", ""); err != nil {
		t.Fatal(err)
	}
	return q
}

// create makes a Job in the queue, suspended as Kueue wants it, of pods that run for a while.
func (q *queue) create(name string, pods, pairs int) {
	q.Helper()
	template := server.Pod("", pairs, pairs)
	count := int32(pods)
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kueue.x-k8s.io/queue-name": "pairs"}},
		Spec: batchv1.JobSpec{
			Suspend: new(true), Parallelism: &count, Completions: &count, BackoffLimit: new(int32(0)),
			Template: v1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels:      map[string]string{"test.tandem.dev/job": name},
					Annotations: map[string]string{"test.tandem.dev/life": "10s", "test.tandem.dev/try": "0"},
				},
				Spec: v1.PodSpec{
					SchedulerName: byTandem.name, RestartPolicy: v1.RestartPolicyNever,
					Containers: template.Spec.Containers,
				},
			},
		},
	}
	_, err := q.client.BatchV1().Jobs("default").Create(q.Context(), job, metav1.CreateOptions{})
	if err != nil {
		q.Fatal(err)
	}
}

func (q *queue) job(name string) *batchv1.Job {
	q.Helper()
	job, err := q.client.BatchV1().Jobs("default").Get(q.Context(), name, metav1.GetOptions{})
	if err != nil {
		q.Fatal(err)
	}
	return job
}

// wait waits until so many pods of a job are as they should be at once.
func (q *queue) wait(job string, count int, satisfied func(*v1.Pod) bool) {
	q.Helper()
	ctx, cancel := context.WithTimeout(q.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		pods, err := q.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{
			LabelSelector: "test.tandem.dev/job=" + job,
		})
		if err != nil {
			q.Fatal(err)
		}
		var are []string
		left := count
		for i := range pods.Items {
			p := &pods.Items[i]
			are = append(are, fmt.Sprintf("%s on %q is %s %s", p.Name, p.Spec.NodeName, p.Status.Phase, refusal(p)))
			if satisfied(p) {
				left--
			}
		}
		if left <= 0 {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			q.Fatalf("%d pods of %s are not as they should be:\n%s", left, job, strings.Join(are, "\n"))
		}
	}
}
