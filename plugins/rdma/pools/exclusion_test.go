// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"testing"

	"github.com/tandem-k8s/tandem/test/functions"
)

// The key is that of the stock plugin, in any case and with null for nothing; "auto" is Tandem's.
func TestExclusionIsRead(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]Exclusion{
		`"excludeTopology": true`: Always, `"excludeTopology": false`: Never, `"excludeTopology": null`: Never,
		`"excludetopology": true`: Always, `"EXCLUDETOPOLOGY": "auto"`: Auto, `"excludeTopology": "auto"`: Auto,
		`"excludeTopology": "auto", "excludeTopology": false`: Never,
		`"excludeTopology": true, "excludeTopology": null`:    Always, `"prefix": ""`: Never,
	} {
		for _, text := range []string{
			resources(`{"resourceName": "a", ` + value + `}`),
			sharing(`{"resourceName": "a", "rdmaHcaMax": 1, "devices": ["ib0"], ` + value + `}`),
		} {
			if got := config(t, text).Resources[0].ExcludeTopology; got != want {
				t.Errorf("%s: %q, want %q", text, got, want)
			}
		}
	}
}

// numbered is a machine with n NUMA nodes, the first ones with CPUs, and a VF on node 0. Without CPUs there
// are no lists of CPUs.
func numbered(n, withCPUs int) functions.Sysfs {
	s := functions.New()
	s.Write("devices/system/node/online", fmt.Sprintf("0-%d", n-1))
	for node := range n {
		list := ""
		if node < withCPUs {
			list = fmt.Sprint(node)
		}
		if withCPUs > 0 {
			s.Write(fmt.Sprintf("devices/system/node/node%d/cpulist", node), list)
		}
	}
	s.PF(0x81, "ens1", 1, functions.Facts{"numa_node": "0"})
	return s
}

// With auto, VFs have NUMA hints if the kubelet can merge these, by the number of NUMA nodes with CPUs.
func TestAutoFollowsTheNode(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		value           string
		nodes, withCPUs int
		hints           bool
		decision        string
	}{
		{`"auto"`, 1, 1, true, "excludeTopology auto: NUMA hints, because there are up to 4 NUMA nodes: 1"},
		{`"auto"`, 4, 4, true, "excludeTopology auto: NUMA hints, because there are up to 4 NUMA nodes: 4"},
		{`"auto"`, 6, 6, false, "excludeTopology auto: no NUMA hints, because there are more than 4 NUMA nodes: 6"},
		{`"auto"`, 8, 8, false, "excludeTopology auto: no NUMA hints, because there are more than 4 NUMA nodes: 8"},
		{`"auto"`, 8, 0, false, "excludeTopology auto: no NUMA hints, because there are more than 4 NUMA nodes: 8"},
		{`"auto"`, 34, 2, true, "excludeTopology auto: NUMA hints, because there are up to 4 NUMA nodes: 2"},
		{`false`, 8, 8, true, ""},
		{`true`, 2, 2, false, ""},
	} {
		sys := numbered(test.nodes, test.withCPUs).FS()
		pools, err := poolsOf(sys, config(t, resources(
			`{"resourceName": "a", "excludeTopology": `+test.value+`}`)), "intel.com")
		if err != nil {
			t.Fatal(err)
		}
		_, hints := pools[0].Devices[0].NUMA.Number()
		if hints != test.hints || pools[0].Decision != test.decision {
			t.Errorf("%s on %d NUMA nodes, %d with CPUs: hints %t, %q", test.value, test.nodes, test.withCPUs, hints,
				pools[0].Decision)
		}
	}
}
