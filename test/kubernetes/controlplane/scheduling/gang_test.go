// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/fleet"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
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
			t.Run(g.name, func(t *testing.T) {
				w := newWorld(t, o, fleet.Options{Nodes: g.nodes, VFs: 1}, isPart)
				g.run(t, w, api)
			})
		}
	})
}

func (g group) run(t *testing.T, w *world, api string) {
	for _, b := range g.before {
		if b.pairs > 0 {
			wish := fleet.Wish{GPUs: b.pairs, VFs: b.pairs, Life: b.life, Node: nodeName(g.nodes - 1)}
			if err := w.nodes.Create(t.Context(), b.name, wish); err != nil {
				t.Fatal(err)
			}
		}
		wait(t, w.client, b.name, func(p *v1.Pod) bool { return p.Status.Phase == b.phase })
	}
	object := fmt.Sprintf(`{"apiVersion": %q, "kind": "PodGroup", "metadata": {"name": "gang"},
		"spec": {"schedulingPolicy": {"gang": {"minCount": %d}}}}`, api, g.pods)
	err := w.client.Discovery().RESTClient().Post().AbsPath("/apis/" + api + "/namespaces/default/podgroups").
		Body([]byte(object)).Do(t.Context()).Error()
	if err != nil {
		t.Fatal(err)
	}
	choice{schedulers: []started{byTandem}}.start(w.plane)
	for i := range g.pods {
		create(t, w.client, g.pod(i))
	}
	for i := range g.pods {
		wait(t, w.client, g.pod(i).Name, func(p *v1.Pod) bool {
			if p.Spec.NodeName != "" {
				t.Errorf("pod %s is sent to %s before the others can be", p.Name, p.Spec.NodeName)
			}
			return refusal(p) != "" || p.Spec.NodeName != ""
		})
	}
	for i := range g.pods {
		wait(t, w.client, g.pod(i).Name, func(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning })
	}
}

func (g group) pod(i int) *v1.Pod {
	pod := scheduled(fmt.Sprint("gang-", i), g.pairs)
	pod.Spec.SchedulerName = byTandem.name
	pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("gang")}
	return pod
}
