// SPDX-License-Identifier: Apache-2.0

package rejection_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/cmd/tandem/rejection"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// TestScopePod: under scope pod the kubelet compares the requests of the whole pod with the node, and so do
// the reason, the NUMA nodes of the empty node and the numbers that it admits.
func TestScopePod(t *testing.T) {
	t.Parallel()
	twice := func(p *corev1.Pod) *corev1.Pod {
		side := p.Spec.Containers[0]
		side.Name = "side"
		p.Spec.Containers = append(p.Spec.Containers, side)
		return p
	}
	busy := map[string][]string{"gpu0": {"team/a"}, "gpu1": {"team/b"}, "vf0": {"team/a"}, "vf1": {"team/b"}}
	for name, c := range map[string]struct {
		vfs       int
		pod       *corev1.Pod
		scopePod  bool
		why, next string
	}{
		"busy":            {4, twice(pod(4, 4, "")), true, "The empty node admits the pod on 2 NUMA nodes.", ""},
		"too many":        {4, twice(pod(5, 5, "")), true, "it has 8 healthy devices of example.com/gpu", ""},
		"too many by one": {4, twice(pod(4, 5, "")), false, "it has 8 healthy devices of example.com/vf", ""},
		"always": {16, twice(pod(3, 3, "")), true, "have no set in common",
			"in all containers of the pod together: the empty node admits 1+1, 2+2, 3+3, 4+4; "},
	} {
		r := rejection.Explain(c.pod, twoNodes(c.vfs, busy),
			devicemanager.Kubelet{Rule: hints.Rule{Policy: hints.Restricted}, ScopePod: c.scopePod})
		if !strings.Contains(r.Verdict, c.why) || !strings.Contains(r.Next, c.next) {
			t.Errorf("%s: %s\nnext: %s\nwant %q, %q", name, r.Verdict, r.Next, c.why, c.next)
		}
	}
}
