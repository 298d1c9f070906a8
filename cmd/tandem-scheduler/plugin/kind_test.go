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

	"github.com/tandem-k8s/tandem/cluster/rank"
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
	if r.plugin.object("a").kind != r.plugin.object("b").kind {
		t.Error("equal nodes are of two kinds")
	}
	if r.plugin.object("a").kind == r.plugin.object("other").kind {
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

// Deleted versions are forgotten: only the hashes of their offers remain.
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
		object.offer(on("a"), pod, request("1"))
	}
	if now := heap(); now > before+20<<20 {
		t.Errorf("%d MiB are kept of 200 versions of an object", (now-before)>>20)
	}
	if got := len(r.offers.known); got != 200 {
		t.Errorf("there is little to forget: %d offers", got)
	}
	runtime.KeepAlive(r)
}

// The cache of offers is bounded for any number of requests and nodes.
func TestOffersAreBounded(t *testing.T) {
	var c offerCache
	for i := range 3 * maxOffers / 2 {
		c.remember(question{wish: request(fmt.Sprint(i))}, rank.Offer{Free: i})
	}
	if len(c.known) > maxOffers {
		t.Errorf("%d offers", len(c.known))
	}
	if offer, known := c.find(question{wish: request(fmt.Sprint(3*maxOffers/2 - 1))}); !known ||
		offer.Free != 3*maxOffers/2-1 {
		t.Errorf("the last one is %+v, %t", offer, known)
	}
}

func (r *rig) offer(pod *v1.Pod, info fwk.NodeInfo) any {
	return r.plugin.object(info.Node().Name).offer(info, pod, request("2"))
}
