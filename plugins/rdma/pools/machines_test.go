// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// load returns a recorded machine with this many VFs per PF, and its VFs that have an RDMA device, by PF.
func load(t testing.TB, name string, vfsPerPF int) (fs.FS, map[topology.Address][]string) {
	t.Helper()
	sys, tree := machines.Read(t, name, vfsPerPF)
	vfs := map[topology.Address][]string{}
	for d := range tree.Devices() {
		if d.IsVF() && d.Driver != "" && len(d.RDMA) > 0 {
			vfs[d.PF] = append(vfs[d.PF], d.Address.String())
		}
	}
	return sys, vfs
}

// On every recorded machine each PF gives a pool of its VFs, and all of them together are the pool of every
// VF.
func TestRecordedMachines(t *testing.T) {
	for _, name := range machines.Names() {
		t.Run(name, func(t *testing.T) {
			sys, vfs := load(t, name, 4)
			if len(vfs) == 0 {
				t.Skip("no VF with a driver and an RDMA device")
			}
			var list, all []string
			pfs := slices.SortedFunc(maps.Keys(vfs), topology.Address.Compare)
			for i, pf := range pfs {
				all = append(all, vfs[pf]...)
				list = append(list,
					fmt.Sprintf(`{"resourceName": "middle%d", "selectors": {"rootDevices": ["%s#1-2"]}}`, i, pf),
					fmt.Sprintf(`{"resourceName": "rest%d", "selectors": {"rootDevices": ["%s"], "isRdma": true}}`, i, pf))
			}
			pools := discover(t, sys, resources(list...))
			for i, pf := range pfs {
				middle, rest := ids(pools[2*i]), ids(pools[2*i+1])
				if len(vfs[pf]) == 4 && !slices.Equal(middle, vfs[pf][1:3]) {
					t.Errorf("VFs 1 and 2 of %s are %v; want %v", pf, middle, vfs[pf][1:3])
				}
				together := byAddress(slices.Concat(middle, rest))
				if diff := cmp.Diff(vfs[pf], together); diff != "" {
					t.Errorf("VFs of %s: %s", pf, diff)
				}
			}
			every := discover(t, sys, resources(`{"resourceName": "a", "selectors": {"isRdma": true}}`))[0]
			every.Devices = slices.DeleteFunc(every.Devices, func(d Device) bool { return d.PF == topology.Address{} })
			if diff := cmp.Diff(byAddress(all), ids(every)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// byAddress sorts IDs as pools do.
func byAddress(ids []string) []string {
	slices.SortFunc(ids, func(a, b string) int {
		x, _ := topology.ParseAddress(a)
		y, _ := topology.ParseAddress(b)
		return x.Compare(y)
	})
	return ids
}

func discover(t testing.TB, sys fs.FS, list string) []Pool {
	t.Helper()
	c, err := parseConfig("config.json", []byte(list))
	if err != nil {
		t.Fatal(err)
	}
	pools, err := poolsOf(sys, c, "intel.com")
	if err != nil {
		t.Fatal(err)
	}
	return pools
}

// 1016 VFs on eight PFs, the most that eight ConnectX-7 have.
func BenchmarkDiscover1016(b *testing.B) {
	sys, _ := load(b, "oci-mi300x-derived", 127)
	list := resources(
		`{"resourceName": "a", "selectors": {"rootDevices": ["0000:0c:00.0#0-63"], "linkTypes": ["ether"]}}`,
		`{"resourceName": "b", "selectors": {"isRdma": true, "pfNames": ["none"]}}`,
		`{"resourceName": "c", "selectors": {"isRdma": true}}`,
	)
	for b.Loop() {
		pools := discover(b, sys, list)
		if got := len(pools[0].Devices) + len(pools[2].Devices); got != 1016 {
			b.Fatalf("%d devices", got)
		}
	}
}
