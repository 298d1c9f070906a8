// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/topology"
)

// TestAutoIsQuick: on a machine where a pool with excludeTopology auto has hints, even a container with hints
// of two such pools, GPUs, CPUs and memory is admitted quickly; with hints on one NUMA node more it is not.
func TestAutoIsQuick(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.json")
	const auto = `{"resourceList": [{"resourceName": "a", "excludeTopology": "auto"}]}`
	if err := os.WriteFile(file, []byte(auto), 0o600); err != nil {
		t.Fatal(err)
	}
	for nodes := 1; nodes <= hints.MaxNodes; nodes++ {
		sys := functions.New()
		sys.Write("devices/system/node/online", fmt.Sprintf("0-%d", nodes-1))
		sys.PF(0x81, "ens1", 1, functions.Facts{"numa_node": "0"})
		config, err := pools.ReadConfig(file)
		if err != nil {
			t.Fatal(err)
		}
		found, _, err := pools.Finder{Sys: sys.FS(), Prefix: "x.y"}.Find(config)
		if err != nil {
			t.Fatal(err)
		}
		demand := hints.Demand{Count: 1}
		for node := range nodes {
			demand.All.Add(topology.Node(node))
			demand.Free.Add(topology.Node(node))
		}
		slow := hints.Rule{Policy: hints.Restricted}.MergeTime(slices.Repeat([]hints.Demand{demand}, 5)...).Slow()
		if _, hinted := found[0].Devices[0].NUMA.Number(); hinted == slow {
			t.Errorf("%d NUMA nodes: hints %t, slow with hints %t", nodes, hinted, slow)
		}
	}
}
