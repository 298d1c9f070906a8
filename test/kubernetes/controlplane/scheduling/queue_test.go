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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/fleet"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/manifest"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
	"github.com/tandem-k8s/tandem/test/server"
)

// queue is a queue of Kueue's before tandem-scheduler and three nodes.
type queue struct {
	t      *testing.T
	client kubernetes.Interface
	nodes  *fleet.Fleet
}

// pairsPerNUMA are what the nodes' labels say.
var pairsPerNUMA = map[string]string{"node-0000": "4", "node-0001": "4", "node-0002": "2"}

func startQueue(t *testing.T, o plane.Options) *queue {
	t.Helper()
	p, client := start(t, o)
	q := &queue{t: t, client: client}
	q.nodes = q.startNodes()
	for node, pairs := range pairsPerNUMA {
		patch := fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, publish.LabelPairsPerNUMA, pairs)
		_, err := client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(patch),
			metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	p.StartControllers("job-controller")
	choice{schedulers: []started{byTandem}}.start(p)
	p.StartKueue(filepath.Join(*programs, "kueue", "config", "default"))
	if err := manifest.ApplyFile(t.Context(), p.Admin(), "testdata/kueue.yaml", ""); err != nil {
		t.Fatal(err)
	}
	return q
}

// startNodes starts the kubelets. When the test ends they have refused nothing, and every pod has all its
// pairs on a node with the flavor's label.
func (q *queue) startNodes() *fleet.Fleet {
	q.t.Helper()
	told := make(chan fleet.Pod, 100)
	nodes, err := fleet.New(q.t.Context(), q.client, fleet.Options{Nodes: len(pairsPerNUMA), VFs: 1},
		func(p fleet.Pod) { told <- p })
	if err != nil {
		q.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- nodes.Run(ctx) }()
	q.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			q.t.Error(err)
		}
		close(told)
		for p := range told {
			if !p.Verdict.Admitted || p.Verdict.Pairs != p.Verdict.Wanted || pairsPerNUMA[p.Node] != "4" {
				q.t.Errorf("%s on %s: %+v", p.Job, p.Node, p.Verdict)
			}
		}
	})
	return nodes
}

// create makes a Job in the queue, suspended as Kueue wants it, of pods that run for a while.
func (q *queue) create(name string, pods, pairs int) {
	q.t.Helper()
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
	_, err := q.client.BatchV1().Jobs("default").Create(q.t.Context(), job, metav1.CreateOptions{})
	if err != nil {
		q.t.Fatal(err)
	}
}

func (q *queue) job(name string) *batchv1.Job {
	q.t.Helper()
	job, err := q.client.BatchV1().Jobs("default").Get(q.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		q.t.Fatal(err)
	}
	return job
}

// wait waits until so many pods of a job are as they should be at once.
func (q *queue) wait(job string, count int, satisfied func(*v1.Pod) bool) {
	q.t.Helper()
	ctx, cancel := context.WithTimeout(q.t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		pods, err := q.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{
			LabelSelector: "test.tandem.dev/job=" + job,
		})
		if err != nil {
			q.t.Fatal(err)
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
			q.t.Fatalf("%d pods of %s are not as they should be:\n%s", left, job, strings.Join(are, "\n"))
		}
	}
}
