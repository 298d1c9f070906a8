// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/topology"
)

// told says what no file says: of all functions, but for the PF in InfiniBand, whose link type is read from
// the netdev.
type told struct{ SRIOVFiles }

func (told) Uplink(pf topology.Address) string {
	if pf.Bus == 0x83 {
		return "ibs3"
	}
	return "told0"
}

func (told) DefaultPKey(topology.Address) string { return "0x1234" }

func (told) Netdevs(topology.Address, string) []string { return []string{"told1"} }

// What a live node is asked by decides, where the Finder has that.
func TestFinderAsks(t *testing.T) {
	sys := functions.Example().FS()
	finder := Finder{Sys: sys, SRIOV: told{SRIOVFiles{Sys: sys}}, Prefix: "intel.com"}
	found, _, err := finder.Find(config(t, resources(
		`{"resourceName": "a", "selectors": {"pKeys": ["0x1234"]}}`,
		`{"resourceName": "b", "selectors": {"pfNames": ["told0#1-2"]}}`,
		`{"resourceName": "c", "deviceType": "auxNetDevice", "selectors": {"auxTypes": ["sf"]}}`)))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]string{
		{"0000:83:00.1"}, {"0000:81:00.2", "0000:81:00.3", "0000:82:00.2"}, {"mlx5_core.sf.2", "mlx5_core.sf.3"},
	} {
		if diff := cmp.Diff(want, ids(found[i])); diff != "" {
			t.Errorf("%s: %s", found[i].Name, diff)
		}
	}
	for _, d := range found[2].Devices {
		if d.Visible == nil {
			t.Errorf("%s has no netdev", d.ID)
		}
	}
}
