// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/test/server"
)

// Pods without holdings are on their way: a pod fits if it does whatever the kubelet has admitted of them, in
// any possible order.
func TestOnTheirWay(t *testing.T) {
	for name, c := range map[string]struct {
		held    map[string]v1alpha1.Set // GPUs and VFs in the object, by pod
		pod     *v1.Pod
		there   []*v1.Pod
		refused bool
		why     string
	}{
		"one takes a NUMA node": {
			pod: created(server.Pod("new", 4, 4), 2), there: []*v1.Pod{created(server.Pod("first", 4, 4), 1)},
		},
		"and another one a part of the other": {
			pod:     created(server.Pod("new", 4, 4), 2),
			there:   []*v1.Pod{created(server.Pod("first", 4, 4), 1), server.Pod("second", 1, 1)},
			refused: true,
		},
		// The kubelet may admit pods of one second in either order. Here both fit if the large one is first: the
		// small one then gets the other NUMA node, on which a GPU is taken. If the small one is first, it takes a
		// device that the large one needs.
		"of the same second": {
			held:    map[string]v1alpha1.Set{"held": "4"},
			pod:     created(server.Pod("small", 1, 1), 1),
			there:   []*v1.Pod{server.Pod("held", 1, 1), created(server.Pod("large", 4, 4), 1)},
			refused: true, why: overtaken,
		},
		// In one of the orders the kubelet refuses the larger one of two pods of another scheduler, and room
		// remains; in the other order none remains.
		"refused in one order": {
			held: map[string]v1alpha1.Set{"held": "4"},
			pod:  created(server.Pod("small", 1, 1), 3),
			there: []*v1.Pod{
				server.Pod("held", 1, 1), created(server.Pod("three", 3, 3), 1), created(server.Pod("four", 4, 4), 2),
			},
			refused: true, why: overtaken,
		},
		"refused in any case": {pod: server.Pod("new", 1, 1), there: []*v1.Pod{server.Pod("too much", 9, 9)}},
		// One of two pods that held a NUMA node is deleted. A third one is on its way: if it was admitted before
		// the deletion, it holds the other NUMA node, and none is free.
		"admitted before another was gone": {
			held:    map[string]v1alpha1.Set{"stays": "0-1", "gone": "2-3"},
			pod:     server.Pod("new", 4, 4),
			there:   []*v1.Pod{server.Pod("stays", 2, 2), server.Pod("comes", 2, 2)},
			refused: true, why: overtaken,
		},
		"nobody is gone": {
			held:  map[string]v1alpha1.Set{"stays": "0-1"},
			pod:   server.Pod("new", 4, 4),
			there: []*v1.Pod{server.Pod("stays", 2, 2), server.Pod("comes", 2, 2)},
		},
		"none is on its way": {
			held:  map[string]v1alpha1.Set{"stays": "0-1", "gone": "2-3"},
			pod:   server.Pod("new", 4, 4),
			there: []*v1.Pod{server.Pod("stays", 2, 2)},
		},
		// All devices were held, and all their holders are gone. If both pods on their way came after that, they
		// share one NUMA node; if each came when the first device of a NUMA node was free, no node has four
		// devices left.
		"many are gone": {
			held: map[string]v1alpha1.Set{
				"gone-0": "0-1", "gone-1": "2-3", "gone-2": "4", "gone-3": "5", "gone-4": "6", "gone-5": "7",
			},
			pod:     server.Pod("new", 4, 4),
			there:   []*v1.Pod{server.Pod("one", 1, 1), server.Pod("two", 2, 2)},
			refused: true, why: overtaken,
		},
		"all are gone": {held: map[string]v1alpha1.Set{"gone": "0-7"}, pod: server.Pod("new", 4, 4)},
	} {
		topology := server.Topology("a", 1, true)
		for _, uid := range slices.Sorted(maps.Keys(c.held)) {
			server.Hold(topology, uid, c.held[uid], c.held[uid])
		}
		_, got := start(t, topology).filter(c.pod, on("a", c.there...))
		if got[0].IsSuccess() == c.refused || !strings.Contains(got[0].Message(), c.why) {
			t.Errorf("%s: %v, want it refused: %t %q", name, got[0], c.refused, c.why)
		}
	}
}

// With too many deleted pods to examine, the pod waits for the node's next report. The node determines the
// listed pods.
func TestTooManyEnds(t *testing.T) {
	topology := withCPUs(server.Topology("a", 8, true)) // no two states are seen to be equal then
	for i := range 100 {
		server.Hold(topology, fmt.Sprint("gone-", i), "", v1alpha1.SetOf(i%64))
	}
	r := start(t, topology)
	_, got := r.filter(server.Pod("new", 1, 1), on("a", server.Pod("one", 1, 1)), on("a"))
	want(t, got[0], fwk.Unschedulable, overtaken)
	if !got[1].IsSuccess() {
		t.Errorf("none is on its way: %v", got[1])
	}
}

// The order of many equal pods does not matter; the verdict on too many different ones is unknown.
func TestManyPodsOfOneWish(t *testing.T) {
	r := start(t, server.Topology("a", 8, true))
	several := func(count int) fwk.NodeInfo {
		var pods []*v1.Pod
		for i := range count {
			pods = append(pods, server.Pod(fmt.Sprint("pod-", i), 0, 1))
		}
		return on("a", pods...)
	}
	_, got := r.filter(server.Pod("new", 1, 1), several(40), several(63))
	if !got[0].IsSuccess() {
		t.Error(got[0])
	}
	want(t, got[1], fwk.Unschedulable, overtaken)
}

// With too many orders to examine, the pod waits for the node's next report.
func TestManyWishes(t *testing.T) {
	r := start(t, server.Topology("a", 8, true))
	var pods []*v1.Pod
	for i := range 12 {
		pods = append(pods, server.Pod(fmt.Sprint("pod-", i), 0, 1+i%4))
		pods[i].Annotations = map[string]string{"tandem.dev/alignment": fmt.Sprint("of its own ", i)}
	}
	_, got := r.filter(server.Pod("new", 1, 1), on("a", pods[:4]...), on("a", pods...))
	if !got[0].IsSuccess() {
		t.Error(got[0])
	}
	want(t, got[1], fwk.Unschedulable, overtaken)
}
