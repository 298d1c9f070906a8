// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
)

// TestRollingUpdate updates the daemon again and again, as a DaemonSet with maxSurge 1 does, while pods come
// and go. There is no moment at which the kubelet has nobody to call: every claim is prepared at the first
// try.
func TestRollingUpdate(t *testing.T) {
	plane.EachVersion(t, func(t *testing.T, o plane.Options) {
		c := startCluster(t, o)
		c.apply(manifests)
		c.apply(templates)
		h := newChurn(t, c)
		w := c.join("a", "oci-mi300x-derived", 4)
		w.judge = h.judge
		h.workers = []*worker{w}
		for i := range 8 {
			h.update(w, i)
		}
		h.quiet(w)
		for _, prepared := range w.log() {
			for _, failed := range prepared.Failed {
				if strings.Contains(failed, noRelation) {
					continue
				}
				t.Errorf("pod %s was not prepared at once: %s", prepared.Name, failed)
			}
		}
	})
}

// noRelation is said by an API server that has not noticed yet that the pod is on the node.
const noRelation = "no relationship found between node"

// update starts a new daemon and ends the old one while pods come, and lets them go.
func (h *churn) update(w *worker, number int) {
	h.t.Helper()
	done := make(chan error, 1)
	old, next := w.daemon, w.startDaemon()
	w.daemon = next
	go func() {
		err := w.waitReady(next)
		old.Stop()
		done <- err
	}()
	kinds := h.kinds(w, 1)
	for i := 0; ; i++ {
		kind := slices.Sorted(maps.Keys(kinds))[i%len(kinds)]
		pod := kinds[kind].DeepCopy()
		pod.Name = fmt.Sprintf("%s-%d-%d", kind, number, i)
		h.wants.Store(pod.Name, want{gpus: 1, vfs: 1, pairs: 1})
		h.end(h.runs(w, pod))
		select {
		case err := <-done:
			h.must(err)
			return
		default:
		}
	}
}
