// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/coordination/verdict"
	"github.com/tandem-k8s/tandem/test/server"
)

// withCPUs makes the kubelet's CPU manager static.
func withCPUs(o *v1alpha1.NodeTopology) *v1alpha1.NodeTopology {
	o.Spec.Kubelet.CPUManagerPolicy, o.Spec.Kubelet.ReservedSystemCPUs = "static", "0,32"
	o.Spec.NUMANodes[0].CPUs, o.Spec.NUMANodes[1].CPUs = "0-31", "32-63"
	return o
}

// guaranteed is a pod of class Guaranteed without devices.
func guaranteed(name, cpus string) *v1.Pod {
	pod := server.Pod(name, 0, 0)
	list := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse(cpus), v1.ResourceMemory: resource.MustParse("50Mi"),
	}
	pod.Spec.Containers[0].Name = name // of a request of its own
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Limits: list, Requests: list}
	return pod
}

// Pods that never enter the kubelet's checkpoints do not count as on their way, in any number.
func TestPodsThatHoldNothing(t *testing.T) {
	zero := func(name string) *v1.Pod {
		pod := server.Pod(name, 0, 0)
		pod.Spec.Containers[0].Name = name
		none := v1.ResourceList{server.GPU: resource.MustParse("0")}
		pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Limits: none, Requests: none}
		return pod
	}
	backed := func(name string) *v1.Pod {
		pod := server.Pod(name, 1, 0)
		pod.Spec.Containers[0].Name = name
		pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{
			RequestMappings: []v1.ContainerExtendedResourceRequest{{ContainerName: name, ResourceName: server.GPU}},
		}
		return pod
	}
	whole := func(name string) *v1.Pod { // of the pod, not of its container
		pod := guaranteed(name, "1")
		pod.Spec.Resources = &pod.Spec.Containers[0].Resources
		return pod
	}
	r := start(t, withCPUs(server.Topology("a", 1, true)))
	for what, pod := range map[string]func(string) *v1.Pod{
		"fractions of a CPU": func(name string) *v1.Pod { return guaranteed(name, "100m") }, "0 GPUs": zero,
		"claims": backed, "resources of the pod": whole,
	} {
		var pods []*v1.Pod
		for i := range 12 {
			pods = append(pods, pod(fmt.Sprint("pod-", i)))
		}
		if _, got := r.filter(server.Pod("new", 1, 1), on("a", pods...)); !got[0].IsSuccess() {
			t.Errorf("%s: %v", what, got[0])
		}
	}
	var pods []*v1.Pod
	for i := range 12 {
		pods = append(pods, guaranteed(fmt.Sprint("pod-", i), "1"))
	}
	_, got := r.filter(server.Pod("new", 1, 1), on("a", pods...))
	want(t, got[0], fwk.Unschedulable, overtaken)
}

// The kubelet knows a static pod by the UID of its file, the API server knows its mirror by another UID. The
// mirror counts as a pod on its way, and what its annotation names counts for nothing: anybody can write
// that.
func TestStaticPod(t *testing.T) {
	const file = "0123456789abcdef0123456789abcdef"
	topology := server.Topology("a", 1, true)
	server.Hold(topology, file, "4-5", "4-5")
	server.Hold(topology, "other", "0-1", "0-1")
	r := start(t, topology)
	mirror, other := server.Pod("static-a", 2, 2), server.Pod("other", 2, 2)
	mirror.Annotations = map[string]string{v1.MirrorPodAnnotationKey: file}
	mirror.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "a"}}
	if _, got := r.filter(server.Pod("new", 2, 2), on("a", mirror, other)); !got[0].IsSuccess() {
		t.Errorf("the static pod counts twice: %v", got[0])
	}
	forger := server.Pod("forger", 0, 0)
	forger.Annotations, forger.OwnerReferences = mirror.Annotations, mirror.OwnerReferences
	if _, got := r.filter(server.Pod("new", 4, 4), on("a", forger, other)); !got[0].IsSuccess() {
		t.Errorf("a pod that claims to be a mirror keeps the devices of another one: %v", got[0])
	}
}

// An unknown option of the CPU manager disables the prediction for CPUs, not for devices.
func TestUnknownOption(t *testing.T) {
	for _, option := range []string{"align-by-socket", "distribute-cpus-across-cores", "option-of-tomorrow"} {
		topology := withCPUs(server.Topology("a", 1, true))
		topology.Spec.Kubelet.CPUManagerPolicyOptions = map[string]string{option: "true"}
		server.Hold(topology, "a", "0", "0")
		server.Hold(topology, "b", "4", "4")
		r := start(t, topology)
		_, got := r.filter(server.Pod("new", 4, 4), on("a", server.Pod("a", 1, 1), server.Pod("b", 1, 1)))
		want(t, got[0], fwk.Unschedulable, "no NUMA node has 4 amd.com/gpu")
	}
}

// Each offer is better than the next one.
func TestCompareOffers(t *testing.T) {
	offers := []offer{
		{pairs: 4, stranded: 3, lost: verdict.Room{1, 1, 2, 4}, free: 9},
		{pairs: 3, stranded: 0, lost: verdict.Room{0, 0, 1, 2}, free: 1},
		{pairs: 3, stranded: 0, lost: verdict.Room{0, 0, 1, 2}, free: 2},
		{pairs: 3, stranded: 0, lost: verdict.Room{0, 1, 1, 2}, free: 1},
		{pairs: 3, stranded: 0, lost: verdict.Room{1, 0, 0, 0}, free: 1},
		{pairs: 3, stranded: 1, lost: verdict.Room{}, free: 0},
		{pairs: 0},
	}
	for i, a := range offers {
		for j, b := range offers {
			if got, want := compareOffers(a, b), j-i; got*want < 0 || (got == 0) != (want == 0) {
				t.Errorf("%+v, %+v: %d", a, b, got)
			}
		}
	}
}
