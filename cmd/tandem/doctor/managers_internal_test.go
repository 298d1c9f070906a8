// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
)

// TestWholeNodesReserved: the findings are in the order of the NUMA nodes, in every run.
func TestWholeNodesReserved(t *testing.T) {
	t.Parallel()
	f := &settings{
		Settings: kubelet.Settings{CPUPolicy: static, ReservedCPUs: "0-63"}, CPUs: map[int]topology.CPUSet{},
	}
	const nodes = 64
	for number := range nodes {
		f.CPUs[number] = topology.CPUSet{number: true}
	}
	findings := wholeNodesReserved(f)
	if len(findings) != nodes {
		t.Fatalf("%d findings", len(findings))
	}
	for number, found := range findings {
		want := fmt.Sprintf("All CPUs of NUMA node %d are reserved for the system.", number)
		if found.Summary != want {
			t.Errorf("finding %d is %q", number, found.Summary)
		}
	}
}
