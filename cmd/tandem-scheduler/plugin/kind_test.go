package plugin

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-k8s/tandem/test/server"
)

// What an equal node has answered is the answer of a node, and no other's is.
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

func (r *rig) offer(pod *v1.Pod, info fwk.NodeInfo) any {
	return r.plugin.object(info.Node().Name).offer(info, pod, asked("2"))
}
