// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// kinds are the ways to ask for so many pairs.
func (h *churn) kinds(w *worker, n int) map[string]*v1.Pod {
	kinds := map[string]*v1.Pod{
		"template":  templatePod("", fmt.Sprint("tandem-pairs-", n)),
		"pair":      resourcesPod("", map[string]int{"tandem.dev/pair": n}),
		"unchanged": resourcesPod("", map[string]int{w.GPU: n, "tandem.dev/rdma_vf": n}),
	}
	if n > 1 {
		kinds["near"] = templatePod("", fmt.Sprintf("tandem-pairs-%d-numa", n))
	}
	return kinds
}

// once has a pod come and go.
func (h *churn) once(w *worker, kind string, pod *v1.Pod, wanted want) {
	h.t.Helper()
	pod.Name = fmt.Sprintf("%s-%d", kind, wanted.pairs)
	h.wants.Store(pod.Name, wanted)
	h.end(h.runs(w, pod))
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
