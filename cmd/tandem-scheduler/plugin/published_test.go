// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strings"
	"testing"

	"k8s.io/klog/v2/ktesting"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/test/server"
)

// An object with invalid CPUs is used for its devices, with a line in the log.
func TestUnreadableCPUs(t *testing.T) {
	for held, complains := range map[string]bool{"1-2": false, "1-": true} {
		topology := server.Topology("a", 1, true)
		topology.Spec.Kubelet.CPUManagerPolicy, topology.Spec.Kubelet.ReservedSystemCPUs = "static", "0"
		topology.Spec.NUMANodes[0].CPUs, topology.Spec.NUMANodes[1].CPUs = "0-3", "4-7"
		server.Hold(topology, "pod", "0", "0")
		topology.Spec.Held[0].Containers[0].CPUs = v1alpha1.Set(held)
		logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
		if read := newPublished(t, newReader(logger), topology); read.refusal() != nil {
			t.Fatal(read.refusal())
		}
		told := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
		if strings.Contains(told, "left out of account") != complains {
			t.Errorf("CPUs %q: %q", held, told)
		}
	}
}
