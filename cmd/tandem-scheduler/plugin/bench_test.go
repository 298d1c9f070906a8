// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"testing"

	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/test/server"
)

// BenchmarkCycle schedules pods of varying sizes on some thousand nodes: Filter on all of them, Score on 500,
// as in the scheduler. Before each pod one node gets another pod.
func BenchmarkCycle(b *testing.B) {
	const count, scored = 5000, 500
	var objects []*v1alpha1.NodeTopology
	var nodes []fwk.NodeInfo
	for i := range count {
		name := fmt.Sprint("node-", i)
		o := server.Topology(name, 8, true)
		holds := server.Pod(fmt.Sprint("holds-", i), i%4, i%4)
		if i%4 > 0 {
			set := v1alpha1.Set(fmt.Sprintf("0-%d", i%4-1))
			server.Hold(o, string(holds.UID), set, set)
		}
		objects = append(objects, o)
		nodes = append(nodes, on(name, holds))
	}
	r := start(b, objects...)
	b.ReportAllocs()
	at := 0
	for b.Loop() {
		at++
		pod := server.Pod(fmt.Sprint("pod-", at), 1+at%4, 1+at%4)
		changed := at % count
		nodes[changed] = on(fmt.Sprint("node-", changed), server.Pod(fmt.Sprint("comes-", at), 1, 1))
		state := framework.NewCycleState()
		if _, status, _ := r.fwk.RunPreFilterPlugins(r.ctx, state, pod); !status.IsSuccess() {
			b.Fatal(status)
		}
		for _, n := range nodes {
			r.plugin.Filter(r.ctx, state, pod, n)
		}
		r.plugin.PreScore(r.ctx, state, pod, nodes[:scored])
		scores := make(fwk.NodeScoreList, scored)
		for i, n := range nodes[:scored] {
			scores[i].Name = n.Node().Name
			scores[i].Score, _ = r.plugin.Score(r.ctx, state, pod, n)
		}
		if status := r.plugin.NormalizeScore(r.ctx, state, pod, scores); !status.IsSuccess() {
			b.Fatal(status)
		}
	}
}

// BenchmarkRead makes a version of an object ready.
func BenchmarkRead(b *testing.B) {
	reader := newReader(klog.Logger{})
	o := server.Topology("a", 8, true)
	for i := range 4 {
		set := v1alpha1.SetOf(i)
		server.Hold(o, fmt.Sprint("pod-", i), set, set)
	}
	fields := received(b, o)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := reader.read(fields); err != nil {
			b.Fatal(err)
		}
	}
}
