// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// TestManyNodes: with devices on 48 NUMA nodes a question is answered at once. The plan has pairs on one
// switch, of all free devices, and the decision says that no NUMA nodes are predicted.
func TestManyNodes(t *testing.T) {
	for _, source := range []intent.Source{"", intent.PodsAPI} {
		a := newAdmission(t, "oci-mi300x-derived", 1, true, 1)
		var parts []device.Device
		for i := range 48 {
			part := a.all[gpus][i%len(a.all[gpus])]
			part.ID, part.NUMA = fmt.Sprint(part.ID, "-", i), topology.Node(i)
			parts = append(parts, part)
		}
		a.all[gpus], a.source = parts, source
		a.freeAll()
		a.announce()
		pod := a.add("pod")
		a.pods[pod]["c"] = kubelet.Devices{}
		a.tell(pod, container{"c", wish{2, 2}})
		ids, why := a.ask(vfs, 1, 2)
		wantWords(t, why, "NUMA nodes are not predicted: more than 8 have devices")
		pairs := a.coordinator.current().open.Plan.choice.Pairs
		far := slices.ContainsFunc(pairs, func(p placement.Pair) bool { return !p.Distance.Level.Direct() })
		if len(ids) != 2 || len(pairs) != 2 || far {
			t.Errorf("source %q: %v, planned %v", source, ids, pairs)
		}
	}
}
