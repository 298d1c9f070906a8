package plugin

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-k8s/tandem/cluster/v1alpha1"
	"github.com/tandem-k8s/tandem/test/server"
)

func TestAfterPod(t *testing.T) {
	r := start(t, server.Topology("a", 1, true))
	waiting := server.Pod("waiting", 4, 4)
	bound := func(pod *v1.Pod, node string) *v1.Pod {
		pod.Spec.NodeName = node
		return pod
	}
	for _, c := range []struct {
		name string
		gone *v1.Pod
		want fwk.QueueingHint
	}{
		{"with a GPU", bound(server.Pod("x", 1, 0), "a"), fwk.Queue},
		{"without devices", bound(server.Pod("x", 0, 0), "a"), fwk.QueueSkip},
		{"on a node without an object", bound(server.Pod("x", 1, 0), "b"), fwk.QueueSkip},
		{"never bound", server.Pod("x", 1, 0), fwk.QueueSkip},
	} {
		if got, err := r.plugin.afterPod(klog.Background(), waiting, c.gone, nil); err != nil || got != c.want {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}

func TestAfterObject(t *testing.T) {
	r := start(t)
	full, free := server.Topology("a", 1, true), server.Topology("a", 1, true)
	server.Hold(full, "x", "0", "0")
	server.Hold(full, "y", "4", "4")
	for _, c := range []struct {
		name string
		now  *v1alpha1.NodeTopology
		want fwk.QueueingHint
	}{{"full", full, fwk.QueueSkip}, {"free", free, fwk.Queue}} {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c.now)
		if err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{Object: fields}
		got, err := r.plugin.afterObject(klog.Background(), server.Pod("waiting", 4, 4), nil, object)
		if err != nil || got != c.want {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}
