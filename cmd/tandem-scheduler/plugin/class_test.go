// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/coordination/verdict"
	"github.com/tandem-k8s/tandem/test/scale"
	"github.com/tandem-k8s/tandem/test/server"
)

// A node shares the results of an equal node, and of no other.
func TestEqualNodesAnswerOnce(t *testing.T) {
	a, b := server.Topology("a", 1, true), server.Topology("b", 1, true)
	other := server.Topology("other", 1, true)
	server.Hold(a, "x", "0-1", "0-1")
	server.Hold(b, "y", "0-1", "0-1")
	other.Spec.Resources[0].Unhealthy = "7"
	r := start(t, a, b, other)
	if r.plugin.objects.valid("a").kind != r.plugin.objects.valid("b").kind {
		t.Error("equal nodes are of two kinds")
	}
	if r.plugin.objects.valid("a").kind == r.plugin.objects.valid("other").kind {
		t.Error("nodes of which one has an unhealthy GPU are of one kind")
	}
	pod := server.Pod("new", 2, 2)
	for _, holding := range [][]*v1.Pod{{server.Pod("x", 2, 2), server.Pod("y", 2, 2)}, nil} {
		first := r.offer(pod, on("a", holding...))
		if again := r.offer(pod, on("b", holding...)); first != again {
			t.Errorf("%d pods: equal nodes offer %+v and %+v", len(holding), first, again)
		}
		alone := start(t, b)
		if fresh := alone.offer(pod, on("b", holding...)); first != fresh {
			t.Errorf("%d pods: %+v is remembered of %+v", len(holding), first, fresh)
		}
	}
	if full, empty := r.offer(pod, on("a", server.Pod("x", 2, 2))), r.offer(pod, on("a")); full == empty {
		t.Errorf("with and without a pod there the node offers %+v", full)
	}
}

// Deleted versions are forgotten: only the hashes of their classes remain, with the offers.
func TestVersionsAreForgotten(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	r := newReader(klog.Background())
	pod := server.Pod("new", 1, 1)
	before, pad := heap(), strings.Repeat("x", 200_000)
	for i := range 200 {
		topology := server.Topology("a", 1, true)
		topology.Spec.Kubelet.Version = fmt.Sprint(i, pad)  // of a kind of its own
		topology.Spec.Switches[0].Name = fmt.Sprint(i, pad) // and of a shape
		object := newPublished(t, r, topology)
		object.observation(on("a")).offer(pod, "1")
	}
	if now := heap(); now > before+20<<20 {
		t.Errorf("%d MiB are kept of 200 versions of an object", (now-before)>>20)
	}
	if got := len(r.classes.known); got != 200 {
		t.Errorf("there is little to forget: %d classes", got)
	}
	runtime.KeepAlive(r)
}

// The cached results are bounded for any number of requests and nodes.
func TestResultsAreBounded(t *testing.T) {
	var m memo[int]
	for i := range 3 * maxRequests / 2 {
		m.remember(request(fmt.Sprint(i)), i)
		if n := len(*m.known.Load()); n > maxRequests {
			t.Fatalf("%d results", n)
		}
		if last, known := m.find(request(fmt.Sprint(i))); !known || last != i {
			t.Fatalf("result %d is %d, %t", i, last, known)
		}
	}
	var c classes
	object := newPublished(t, newReader(klog.Background()), server.Topology("a", 1, true))
	state := object.observation(on("a")).after
	for i := range 3 * maxClasses / 2 {
		k := kind{byte(i), byte(i >> 8)}
		class := c.find(k, state)
		if len(c.known) > maxClasses {
			t.Fatalf("%d classes", len(c.known))
		}
		if c.find(k, state) != class {
			t.Fatalf("class %d is not known", i)
		}
	}
}

func (r *rig) offer(pod *v1.Pod, info fwk.NodeInfo) any {
	return r.plugin.objects.valid(info.Node().Name).observation(info).offer(pod, "2")
}

// changing is a node with an object and pods that change.
type changing struct {
	topology *v1alpha1.NodeTopology
	pods     []*v1.Pod
	info     fwk.NodeInfo // nil after a change of the pods
	object   *published   // nil after a change of the topology
}

// Cached results equal the results of a new plugin, after any changes of objects and pods.
func TestCachedEqualsFresh(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	reader := newReader(klog.Background())
	managed := withCPUs(server.Topology("d", 1, true))
	unhealthy := server.Topology("c", 1, true)
	unhealthy.Spec.Resources[0].Unhealthy = "7"
	var nodes []*changing
	for _, o := range []*v1alpha1.NodeTopology{
		server.Topology("a", 1, true), server.Topology("b", 1, true), unhealthy, managed,
	} {
		nodes = append(nodes, &changing{topology: o})
	}
	cached := 0
	rounds := scale.Rounds(1000)
	for i := range rounds {
		n := nodes[random.IntN(len(nodes))]
		if random.IntN(2) == 0 {
			n.change(random, fmt.Sprint("pod-", i))
		}
		pod := someOf(random, fmt.Sprint("new-", i))
		if len(n.pods) > 0 && random.IntN(20) == 0 {
			pod = n.pods[random.IntN(len(n.pods))]
		}
		if n.compare(t, reader, pod) {
			cached++
		}
	}
	if cached < rounds/8 {
		t.Errorf("only %d verdicts were cached", cached)
	}
}

// compare compares the results for a pod with those of a new reader, and reports whether they were cached.
// Results for a pod that holds devices are not compared: no such pod waits for a node.
func (n *changing) compare(t *testing.T, r *reader, pod *v1.Pod) (cached bool) {
	t.Helper()
	request, err := hashRequest(pod)
	if err != nil {
		t.Fatal(err)
	}
	if n.info == nil {
		n.info = on(n.topology.Name, n.pods...)
	}
	if n.object == nil {
		n.object = newPublished(t, r, n.topology)
	}
	s := n.object.observation(n.info)
	fresh := newPublished(t, newReader(klog.Background()), n.topology).observation(n.info)
	_, cached = s.class.verdicts.find(request)
	got, want := s.verdict(pod, request), fresh.verdict(pod, request)
	if s.after.Holds(pod.UID) {
		return false
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("verdict %+v, want %+v", got, want)
	}
	if !got.Admitted {
		return cached
	}
	if got, want := s.offer(pod, request), fresh.offer(pod, request); got != want {
		t.Fatalf("offer %+v, want %+v", got, want)
	}
	return cached
}

// change sends a pod, deletes a pod, or publishes the holdings of all pods.
func (n *changing) change(random *rand.Rand, name string) {
	switch action := random.IntN(3); {
	case action == 0 && len(n.pods) < 5:
		n.pods, n.info = append(slices.Clone(n.pods), someOf(random, name)), nil
	case action == 1 && len(n.pods) > 0:
		i := random.IntN(len(n.pods))
		n.pods, n.info = slices.Delete(slices.Clone(n.pods), i, i+1), nil
	default:
		n.publish()
	}
}

// publish writes the object with the holdings of the pods.
func (n *changing) publish() {
	empty := n.topology.DeepCopy()
	empty.Spec.Held = nil
	node, err := verdict.New(empty, nil)
	if err != nil {
		panic(err)
	}
	state := node.State(func(types.UID) bool { return true })
	for i, pod := range n.pods {
		if i > 2 && len(n.pods)%2 == 1 {
			break
		}
		held := v1alpha1.Held{UID: string(pod.UID)}
		for _, c := range state.Admit(pod).Containers {
			devices := map[string]v1alpha1.Set{}
			for name, numbers := range c.Devices {
				devices[name] = v1alpha1.SetOf(numbers...)
			}
			held.Containers = append(held.Containers, v1alpha1.Container{Name: c.Name, Devices: devices})
		}
		if len(held.Containers) > 0 {
			empty.Spec.Held = append(empty.Spec.Held, held)
		}
	}
	n.topology, n.object = empty, nil
}

// someOf returns a pod with one of a few requests.
func someOf(random *rand.Rand, name string) *v1.Pod {
	gpus := random.IntN(5)
	pod := server.Pod(name, gpus, max(gpus-random.IntN(2), 0))
	if random.IntN(4) == 0 {
		pod.Annotations = map[string]string{"tandem.dev/alignment": "required"}
	}
	return created(pod, int64(random.IntN(3)))
}
