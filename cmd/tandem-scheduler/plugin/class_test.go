// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

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
