// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/nvml"
	"github.com/tandem-k8s/tandem/test/podsapi"
	"github.com/tandem-k8s/tandem/test/published"
	"github.com/tandem-k8s/tandem/topology"
)

// replicated is a node with two GPUs of four replicas each, and a VF on the switch of each GPU.
type replicated struct {
	*node
	tree      *topology.Tree
	gpus, vfs *kubelettest.Plugin
	near      []string // VFs, in the order of the GPUs
}

// newReplicated starts both daemons on a node with these holders of devices, and pods that the kubelet lists.
func newReplicated(
	t *testing.T, held func(gpu func(i, replica int) string, near []string) []published.Entry,
	pods ...corev1.Pod,
) *replicated {
	t.Helper()
	r := &replicated{node: nvidiaNode(t, "nv-h100-oci", func(m *nvml.Machine) { m.GPUs = m.GPUs[:2] })}
	var err error
	if r.tree, err = topology.Read(os.DirFS(filepath.Join(r.dir, "sys"))); err != nil {
		t.Fatal(err)
	}
	for _, gpu := range r.Machine.GPUs {
		for d := range r.tree.Devices() {
			if d.IsVF() && r.tree.Distance(gpu.Address, d.Address).Level.Direct() {
				r.near = append(r.near, d.Address.String())
				break
			}
		}
	}
	if len(r.near) != 2 || r.near[0] == r.near[1] {
		t.Fatalf("VFs near GPUs: %v", r.near)
	}
	r.checkpoint(t, held(r.replica, r.near)...)
	if len(pods) > 0 {
		stop, err := podsapi.Serve(r.dir, func() []corev1.Pod { return pods })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
	}
	file := filepath.Join(r.dir, "config.yaml")
	write(t, file, "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}")
	kubelet, _, first := r.offers(t, nil, "--config-file="+file)
	r.gpus = first
	await(t, r.gpus, "8")
	r.vfs = r.node.vfs(t, kubelet, r.near...)
	await(t, r.vfs, "2")
	r.joined(t, "nvidia.com/gpu", "nvidia.com/vf")
	return r
}

// replica returns the ID of a replica of a GPU.
func (r *replicated) replica(gpu, replica int) string {
	return r.Machine.GPUs[gpu].UUID + "::" + string(rune('0'+replica))
}

// free returns all replicas but some.
func (r *replicated) free(without ...string) (list []string) {
	for i := range 8 {
		if id := r.replica(i/4, i%4); !slices.Contains(without, id) {
			list = append(list, id)
		}
	}
	return list
}

// take allocates the preferred device.
func take(t *testing.T, plugin *kubelettest.Plugin, available []string) string {
	t.Helper()
	chosen := ask(t, plugin, available, 1)[0]
	if _, err := plugin.Allocate(t.Context(), chosen); err != nil {
		t.Fatal(err)
	}
	return chosen
}

// gave returns the kubelet's entry for a container with a device.
func gave(pod, resource, id string) published.Entry {
	return published.Give(pod, "main", "nvidia.com/"+resource, id)
}

// TestReplicaOfEndedPod: a replica that the kubelet offers is no longer held, also if the checkpoint has it,
// so that the other devices of the pod that had it are free too: the GPU next to the free VF is chosen. Both
// GPUs are used equally.
func TestReplicaOfEndedPod(t *testing.T) {
	r := newReplicated(t, func(gpu func(i, replica int) string, near []string) []published.Entry {
		return []published.Entry{
			gave("second", "gpu", gpu(0, 2)), gave("second", "vf", near[0]), gave("third", "gpu", gpu(1, 2)),
			gave("ended", "gpu", gpu(0, 1)), gave("ended", "vf", near[1]),
		}
	})
	chosen := ask(t, r.gpus, r.free(r.replica(0, 2), r.replica(1, 2)), 1)[0]
	if !strings.HasPrefix(chosen, r.Machine.GPUs[1].UUID) {
		t.Errorf("chosen GPU 0, %s; VF %s on the switch of GPU 1 is free", chosen, r.near[1])
	}
}

// TestReplicaAfterVF: if the kubelet asks for the VF first, the replica is on its switch, although the policy
// for replicas permits only the GPU that another pod does not use.
func TestReplicaAfterVF(t *testing.T) {
	r := newReplicated(t, func(gpu func(i, replica int) string, _ []string) []published.Entry {
		return []published.Entry{gave("other", "gpu", gpu(0, 2))}
	}, pod("other", corev1.PodRunning, "nvidia.com/gpu"),
		pod("asker", corev1.PodPending, "nvidia.com/gpu", "nvidia.com/vf"))
	vf := take(t, r.vfs, r.near)
	gpu := take(t, r.gpus, r.free(r.replica(0, 2)))
	address, err := topology.ParseAddress(vf)
	if err != nil {
		t.Fatal(err)
	}
	if !r.tree.Distance(r.card(t, gpu), address).Level.Direct() {
		t.Errorf("%s and %s are on different switches", gpu, vf)
	}
}

// pod returns a pod whose container requests one device of each resource.
func pod(name string, phase corev1.PodPhase, resources ...corev1.ResourceName) corev1.Pod {
	limits := corev1.ResourceList{}
	for _, name := range resources {
		limits[name] = *resource.NewQuantity(1, resource.DecimalSI)
	}
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits},
		}}},
		Status: corev1.PodStatus{Phase: phase},
	}
}
