// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/fleet"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
	"github.com/tandem-k8s/tandem/test/server"
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
		a := newArena(t, o, len(contests))
		for i, c := range contests {
			t.Run(c.name, func(t *testing.T) { a.hold(t, c, nodeName(i)) })
		}
	})
}

func nodeName(i int) string { return "node-000" + string(rune('0'+i)) }

// arena is nodes, for pods of the default scheduler and of tandem-scheduler. The VFs have hints, eight for
// each NIC: eight pairs are then never admitted.
type arena struct {
	client kubernetes.Interface
	nodes  *fleet.Fleet
	mu     sync.Mutex
	came   map[string]fleet.Pod // by name
}

func newArena(t *testing.T, o plane.Options, nodes int) *arena {
	t.Helper()
	p, client := start(t, o)
	a := &arena{client: client, came: map[string]fleet.Pod{}}
	for name, value := range classes {
		_, err := client.SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value,
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	options := fleet.Options{Nodes: nodes, VFs: 8}
	if a.nodes, err = fleet.New(t.Context(), client, options, a.told); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.nodes.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	choice{schedulers: []started{byDefault, byTandem}}.start(p)
	return a
}

func (a *arena) told(p fleet.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.came[p.Job] = p
}

// numa is the NUMA node of a pod's GPUs.
func (a *arena) numa(name string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return 2 * a.came[name].Verdict.Containers[0].Devices[server.GPU][0] / server.GPUs
}

func (a *arena) hold(t *testing.T, c contest, node string) {
	var there []string
	for i, priority := range c.there {
		name := node + "-" + string(rune('a'+i))
		w := fleet.Wish{GPUs: 2, VFs: 2, Priority: priority, Node: node}
		if err := a.nodes.Create(t.Context(), name, w); err != nil {
			t.Fatal(err)
		}
		wait(t, a.client, name, func(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning })
		if at := a.numa(name); at != i/2 {
			t.Fatalf("pod %s is on NUMA node %d", name, at)
		}
		there = append(there, name)
	}
	name := node + "-high"
	create(t, a.client, challenger(name, c, node))
	wait(t, a.client, name, func(p *v1.Pod) bool {
		if c.victims == nil {
			return strings.Contains(refusal(p), "preemption: ")
		}
		return p.Status.Phase == v1.PodRunning || p.Status.Phase == v1.PodFailed
	})
	a.check(t, c, name, there)
}

// check compares what has become of a contest with what should.
func (a *arena) check(t *testing.T, c contest, name string, there []string) {
	t.Helper()
	pods, err := a.client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
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
	a.mu.Lock()
	defer a.mu.Unlock()
	if v := a.came[name].Verdict; v.Admitted != c.admitted || v.Admitted && v.Pairs != c.pairs {
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
