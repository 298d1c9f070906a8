// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"

	"github.com/tandem-k8s/tandem/test/server"
)

// A decision names the pods that hold devices on the node, and those on their way, without deleted pods and
// pods without devices.
func TestDecisionIsLogged(t *testing.T) {
	topology := server.Topology("a", 1, true)
	server.Hold(topology, "holds", "0", "0")
	server.Hold(topology, "gone", "1", "1")
	r := start(t, topology)
	there := []*v1.Pod{server.Pod("holds", 1, 1), server.Pod("comes", 2, 2), server.Pod("other", 0, 0)}
	for _, p := range there {
		p.Spec.NodeName = "a"
	}
	r.plugin.nodes = internalcache.NewSnapshot(there, []*v1.Node{server.Node("a", 1)})
	pod := server.Pod("new", 1, 1)
	state, _ := r.filter(pod, on("a", there...))
	for verbosity, want := range map[int]string{
		decisions: `holding=["holds"] coming=["comes"]`, decisions - 1: "",
	} {
		logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(
			ktesting.Verbosity(verbosity), ktesting.BufferLogs(true)))
		status := r.fwk.RunReservePluginsReserve(klog.NewContext(r.ctx, logger), state, pod, "a")
		if !status.IsSuccess() {
			t.Fatal(status)
		}
		told := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
		if !strings.Contains(told, want) || (want == "") != (told == "") {
			t.Errorf("verbosity %d: %q", verbosity, told)
		}
	}
}
