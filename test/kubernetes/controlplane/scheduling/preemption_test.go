// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/fleet"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
)

// classes are the priorities of pods.
var classes = map[string]int32{"lower": 1, "low": 2, "high": 3}

// contest is a node that four pods of two pairs each fill, the first two on one NUMA node and the others on
// the other one, and a pod of high priority that comes then.
type contest struct {
	name      string
	scheduler started
	there     [4]string // priorities
	pairs     int       // of the pod that comes
	victims   []int     // of the four
	admitted  bool
	says      string // the pod that waits
}

var contests = []contest{
	{"by counts", byDefault, [4]string{"lower", "low", "lower", "low"}, 4, []int{0, 2}, false, ""},
	{"by the verdict", byTandem, [4]string{"lower", "low", "lower", "low"}, 4, []int{2, 3}, true, ""},
	{"others stay", byTandem, [4]string{"low", "high", "low", "high"}, 4, nil, false, "no NUMA node has 4"},
	{"never", byTandem, [4]string{"low", "low", "low", "low"}, 8, nil, false, "never admitted under restricted"},
}

// TestPreemption has pods of high priority come to full nodes. By counts any two of the four pods there make
// room for four pairs, and the two of the lowest priority go, which are on two NUMA nodes: the kubelet then
// refuses the pod. With the plugin those go that have to, which are on one NUMA node, and none where that
// does not help.
func TestPreemption(t *testing.T) {
	eachVersion(t, func(t *testing.T, o plane.Options) {
		w := newArena(t, o, len(contests))
		for i, c := range contests {
			t.Run(c.name, func(t *testing.T) { c.hold(t, w, nodeName(i)) })
		}
	})
}

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }

// newArena is nodes, for pods of the default scheduler and of tandem-scheduler. The VFs have hints, eight for
// each NIC: eight pairs are then never admitted.
func newArena(t *testing.T, o plane.Options, nodes int) *world {
	t.Helper()
	w := newWorld(t, o, fleet.Options{Nodes: nodes, VFs: 8}, nil)
	for name, value := range classes {
		_, err := w.client.SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value,
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	choice{schedulers: []started{byDefault, byTandem}}.start(w.plane)
	return w
}

func (c contest) hold(t *testing.T, w *world, node string) {
	var there []string
	for i, priority := range c.there {
		name := node + "-" + string(rune('a'+i))
		w.place(t, name, fleet.Wish{GPUs: 2, VFs: 2, Priority: priority, Node: node})
		if at := w.numa(name); at != i/2 {
			t.Fatalf("pod %s is on NUMA node %d", name, at)
		}
		there = append(there, name)
	}
	name := node + "-high"
	create(t, w.client, challenger(name, c, node))
	wait(t, w.client, name, func(p *v1.Pod) bool {
		if c.victims == nil {
			return strings.Contains(refusal(p), "preemption: ")
		}
		return p.Status.Phase == v1.PodRunning || p.Status.Phase == v1.PodFailed
	})
	c.check(t, w, name, there)
}

// check compares what has become of a contest with what should.
func (c contest) check(t *testing.T, w *world, name string, there []string) {
	t.Helper()
	pods, err := w.client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]v1.Pod{}
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil {
			left[p.Name] = p
		}
	}
	for i, name := range there {
		if _, stays := left[name]; stays == slices.Contains(c.victims, i) {
			t.Errorf("pod %s, of priority %s, stays: %t", name, c.there[i], stays)
		}
	}
	p := left[name]
	if c.victims == nil {
		if p.Spec.NodeName != "" || p.Status.NominatedNodeName != "" || !strings.Contains(refusal(&p), c.says) {
			t.Errorf("%q on %q, nominated for %q: want %q", refusal(&p), p.Spec.NodeName,
				p.Status.NominatedNodeName, c.says)
		}
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if v := w.came[name].Verdict; v.Admitted != c.admitted || v.Admitted && v.Pairs != c.pairs {
		t.Errorf("the pod that came: %+v", v)
	}
}

// challenger is the pod that comes.
func challenger(name string, c contest, node string) *v1.Pod {
	pod := scheduled(name, c.pairs)
	pod.Spec.SchedulerName, pod.Spec.PriorityClassName = c.scheduler.name, "high"
	pod.Spec.NodeSelector = map[string]string{v1.LabelHostname: node}
	return pod
}
