// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"testing"

	"github.com/tandem-k8s/tandem/test/functions"
)

// The key is that of the stock plugin, in any case and with null for nothing; "auto" is Tandem's. Without the
// key the node decides, which is not the same as false.
func TestExclusionIsRead(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]exclusion{
		`"excludeTopology": true`: Always, `"excludeTopology": false`: Never, `"excludeTopology": null`: Auto,
		`"excludetopology": true`: Always, `"EXCLUDETOPOLOGY": "auto"`: Auto, `"excludeTopology": "auto"`: Auto,
		`"excludeTopology": "auto", "excludeTopology": false`: Never,
		`"excludeTopology": true, "excludeTopology": null`:    Always, `"prefix": ""`: Auto,
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

// TestDecided: a pool without hints has no NUMA nodes.
func TestDecided(t *testing.T) {
	t.Parallel()
	s := functions.New()
	s.Write("devices/system/node/online", "0-1")
	s.PF(0x81, "ens1", 3, functions.Facts{"numa_node": "1"})
	s.PF(0x01, "ens2", 3, functions.Facts{"numa_node": "0"})
	pool := func(name, vfs, exclude string) string {
		return fmt.Sprintf(`{"resourceName": %q, %s "selectors": {"pfNames": ["ens1#%s", "ens2#%[3]s"]}}`, name, exclude, vfs)
	}
	found, err := poolsOf(s.FS(), config(t, resources(pool("auto", "0", ""))), "intel.com")
	if err != nil {
		t.Fatal(err)
	}
	for _, hints := range []bool{true, false} {
		pool := found[0].Decided(Decision{Hints: hints, Why: "of a test"})
		for _, d := range pool.Devices {
			if _, known := d.NUMA.Number(); known != hints {
				t.Errorf("hints %t: %s has NUMA node %v", hints, d.ID, d.NUMA)
			}
		}
		if want := "excludeTopology auto: NUMA hints, because of a test"; hints && pool.Decision != want {
			t.Errorf("decision %q, want %q", pool.Decision, want)
		}
	}
	if _, known := found[0].Devices[0].NUMA.Number(); !known {
		t.Error("a decision has changed the pool as found")
	}
}
