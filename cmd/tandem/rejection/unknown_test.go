// SPDX-License-Identifier: Apache-2.0

package rejection_test

import (
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/rejection"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// TestUnknownHolders: without a request source the plugins do not know the pods of the kubelet's records, and
// the status has devices without an owner. They are of any number of pods, and the advice names none.
func TestUnknownHolders(t *testing.T) {
	t.Parallel()
	s := twoNodes(4, map[string][]string{"gpu0": {"team/a", "team/a", "team/a"}, "gpu1": {"x", "x", "x"}})
	for r := range s.Resources {
		for d := range s.Resources[r].Devices {
			if s.Resources[r].Devices[d].State == "allocated" {
				s.Resources[r].Devices[d].Owner = ""
			}
		}
	}
	r := rejection.Explain(pod(2, 2, ""), s, devicemanager.Kubelet{Rule: hints.Rule{Policy: hints.Restricted}})
	if r.FitsNow || !r.FitsEmpty || strings.Contains(r.Next, "?") {
		t.Errorf("fits now %v, on the empty node %v; next: %s", r.FitsNow, r.FitsEmpty, r.Next)
	}
}
