// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/test/server"
)

// All devices were held, and all their holders are gone. If both pods on their way came after that, they
// share one NUMA node; if each came when the first device of a NUMA node was free, no node has four devices
// left.
func TestManyEnds(t *testing.T) {
	topology := server.Topology("a", 1, true)
	for i, devices := range []v1alpha1.Set{"0-1", "2-3", "4", "5", "6", "7"} {
		server.Hold(topology, fmt.Sprint("gone-", i), devices, devices)
	}
	r := start(t, topology)
	one, two := server.Pod("one", 1, 1), server.Pod("two", 2, 2)
	_, got := r.filter(server.Pod("new", 4, 4), on("a", one, two), on("a"))
	want(t, got[0], fwk.Unschedulable, overtaken)
	if !got[1].IsSuccess() {
		t.Errorf("none is on its way: %v", got[1])
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

// A pod on its way that the kubelet refuses in any case holds no other pod back.
func TestRefusedInAnyCase(t *testing.T) {
	r := start(t, server.Topology("a", 1, true))
	tooMuch := server.Pod("too much", 9, 9)
	_, got := r.filter(server.Pod("new", 1, 1), on("a", tooMuch), on("a"))
	for i, status := range got {
		if !status.IsSuccess() {
			t.Errorf("node %d: %v", i, status)
		}
	}
}
