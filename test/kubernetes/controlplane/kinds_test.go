// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
)

// TestEachKind has one pod of each kind after the other on machines with AMD's and with NVIDIA's GPUs: by a
// claim template of the manifests, by tandem.dev/pair, and unchanged as for the device plugins.
func TestEachKind(t *testing.T) {
	eachVersion(t, func(t *testing.T, o plane.Options) {
		c := startCluster(t, o)
		c.apply(manifests)
		c.apply(templates)
		h := newChurn(t, c)
		for _, name := range []string{"oci-mi300x-derived", "nv-h100-oci"} {
			t.Run(name, func(t *testing.T) {
				h.t = t
				w := c.join(name, name, 4)
				h.workers = []*worker{w}
				w.judge = h.judge
				for _, n := range []int{1, 2, 4, 8} {
					for kind, pod := range h.kinds(w, n) {
						h.once(w, kind, pod, want{gpus: n, vfs: n, pairs: n})
					}
				}
				w.retire()
			})
		}
	})
}

// kinds are the ways to ask for so many pairs.
func (h *churn) kinds(w *worker, n int) map[string]*v1.Pod {
	kinds := map[string]*v1.Pod{
		"template":  templatePod("", fmt.Sprint("tandem-pairs-", n)),
		"pair":      resourcesPod("", map[string]int{"tandem.dev/pair": n}),
		"unchanged": resourcesPod("", map[string]int{w.Resource(): n, "tandem.dev/rdma_vf": n}),
	}
	if n > 1 {
		kinds["near"] = templatePod("", fmt.Sprintf("tandem-pairs-%d-numa", n))
	}
	return kinds
}

// once has a pod come and go. It is prepared once more than the kubelet asks for.
func (h *churn) once(w *worker, kind string, pod *v1.Pod, wanted want) {
	h.t.Helper()
	pod.Name = fmt.Sprintf("%s-%d", kind, wanted.pairs)
	h.wants.Store(pod.Name, wanted)
	pod = h.runs(w, pod)
	h.again(w, h.claimOf(pod))
	h.end(pod)
	h.quiet(w)
	h.wants.Delete(pod.Name)
}

// runs creates a pod, and waits until it runs. No other does.
func (h *churn) runs(w *worker, pod *v1.Pod) *v1.Pod {
	h.t.Helper()
	pod = h.create(pod)
	if !h.pods.wait(h.t.Context(), func([]*v1.Pod) bool { return h.anyRunning() }) {
		h.t.Fatalf("pod %s does not run: %s", pod.Name, h.explain(h.alive()))
	}
	w.check()
	return pod
}

// claimOf is the claim of a pod.
func (h *churn) claimOf(pod *v1.Pod) *resourceapi.ResourceClaim {
	h.t.Helper()
	claims, err := h.ResourceV1().ResourceClaims(namespace).List(h.t.Context(), metav1.ListOptions{})
	h.must(err)
	for _, claim := range claims.Items {
		owns := func(o metav1.OwnerReference) bool { return o.UID == pod.UID }
		if slices.ContainsFunc(claim.OwnerReferences, owns) {
			return &claim
		}
	}
	h.t.Fatalf("pod %s has no claim", pod.Name)
	return nil
}

// again asks the driver to prepare a claim that it has prepared, and compares what it says with what it said
// to the kubelet.
func (h *churn) again(w *worker, claim *resourceapi.ResourceClaim) {
	h.t.Helper()
	connection, err := grpc.NewClient("unix://"+w.socket(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	h.must(err)
	defer connection.Close()
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	request := &drapb.NodePrepareResourcesRequest{
		Claims: []*drapb.Claim{{Namespace: claim.Namespace, Name: claim.Name, Uid: string(claim.UID)}},
	}
	answer, err := drapb.NewDRAPluginClient(connection).NodePrepareResources(ctx, request)
	h.must(err)
	var devices []string
	for _, device := range answer.Claims[string(claim.UID)].GetDevices() {
		devices = append(devices, device.CdiDeviceIds...)
	}
	log := w.log()
	var told []string
	for _, list := range log[len(log)-1].Devices {
		told = append(told, list...)
	}
	slices.Sort(devices)
	slices.Sort(told)
	if len(devices) == 0 || !slices.Equal(slices.Compact(devices), slices.Compact(told)) {
		h.t.Errorf("claim %s is prepared again with %s, and was before with %s: %s", claim.Name, devices, told,
			answer.Claims[string(claim.UID)].GetError())
	}
}
