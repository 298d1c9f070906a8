// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"context"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/fleet"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
	"github.com/tandem-k8s/tandem/test/server"
)

// podGroups is where each version serves groups of pods.
var podGroups = map[string]string{"1.36": "scheduling.k8s.io/v1alpha2", "1.37": "scheduling.k8s.io/v1beta1"}

// group is pods that start together, and the pods in their way.
type group struct {
	name        string
	pods, pairs int // how many, and of each
	nodes       int
	before      []before
}

// before is a pod on the last node before the group comes.
type before struct {
	name  string
	pairs int // 0 where it is there
	life  time.Duration
	phase v1.PodPhase // to be seen before the next one comes
}

// groups wait. By count the three pods with four pairs fit: eight pairs are free on one node and six on the
// other. But of the six no four are on one NUMA node, so that the kubelet would refuse the third pod. (The
// large pod is in the way of the second small one, and gone when the third comes.) Of the three nodes that
// the other group needs, one has a pod.
var groups = []group{
	{"4+4", 3, 4, 2, []before{
		{"large", 4, time.Second, v1.PodRunning}, {"staying", 1, 0, v1.PodRunning},
		{"large", 0, 0, v1.PodSucceeded}, {"ending", 1, 30 * time.Second, v1.PodRunning},
	}},
	{"8+8", 3, 8, 3, []before{{"ending", 1, 30 * time.Second, v1.PodRunning}}},
}

// TestGang has groups of pods wait. None is sent before the pod that is in the way is gone; then all start
// with all their pairs.
func TestGang(t *testing.T) {
	eachVersion(t, func(t *testing.T, o plane.Options) {
		api := podGroups[o.Version[:4]]
		o.APIs, o.Gates = []string{api + "=true"}, map[string]bool{"GenericWorkload": true}
		if o.Version < "1.37" {
			o.Gates["GangScheduling"] = true
		}
		for _, g := range groups {
			t.Run(g.name, func(t *testing.T) { g.run(t, o, api) })
		}
	})
}

func (g group) run(t *testing.T, o plane.Options, api string) {
	client := g.start(t, o, api)
	for i := range g.pods {
		create(t, client, g.pod(i))
	}
	for i := range g.pods {
		wait(t, client, g.pod(i).Name, func(p *v1.Pod) bool {
			if p.Spec.NodeName != "" {
				t.Errorf("pod %s is sent to %s before the others can be", p.Name, p.Spec.NodeName)
			}
			return refusal(p) != "" || p.Spec.NodeName != ""
		})
	}
	for i := range g.pods {
		wait(t, client, g.pod(i).Name, func(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning })
	}
}

// start starts the nodes, the pods in the way and the scheduler.
func (g group) start(t *testing.T, o plane.Options, api string) kubernetes.Interface {
	t.Helper()
	p, client := start(t, o)
	told := make(chan fleet.Pod, 100)
	tell := func(p fleet.Pod) { told <- p }
	nodes, err := fleet.New(t.Context(), client, fleet.Options{Nodes: g.nodes, VFs: 1}, tell)
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
		close(told)
		for p := range told {
			if !p.Verdict.Admitted || p.Verdict.Pairs != p.Verdict.Wanted {
				t.Errorf("%s on %s: %+v", p.Job, p.Node, p.Verdict)
			}
		}
	})
	for _, b := range g.before {
		if b.pairs > 0 {
			w := fleet.Wish{GPUs: b.pairs, VFs: b.pairs, Life: b.life, Node: fmt.Sprintf("node-%04d", g.nodes-1)}
			if err := nodes.Create(ctx, b.name, w); err != nil {
				t.Fatal(err)
			}
		}
		wait(t, client, b.name, func(p *v1.Pod) bool { return p.Status.Phase == b.phase })
	}
	object := fmt.Sprintf(`{"apiVersion": %q, "kind": "PodGroup", "metadata": {"name": "gang"},
		"spec": {"schedulingPolicy": {"gang": {"minCount": %d}}}}`, api, g.pods)
	err = client.Discovery().RESTClient().Post().AbsPath("/apis/" + api + "/namespaces/default/podgroups").
		Body([]byte(object)).Do(ctx).Error()
	if err != nil {
		t.Fatal(err)
	}
	choice{schedulers: []started{byTandem}}.start(p)
	return client
}

func (g group) pod(i int) *v1.Pod {
	pod := scheduled(fmt.Sprint("gang-", i), g.pairs)
	pod.Spec.SchedulerName = byTandem.name
	pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("gang")}
	return pod
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

// refusal is why a pod finds no node.
func refusal(p *v1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

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
			t.Fatalf("pod %s on %q is %s, %q; %v", name, seen.Spec.NodeName,
				seen.Status.Phase, refusal(seen), err)
		}
	}
}
