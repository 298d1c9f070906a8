// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/functions"
)

// Rows of test/parity/checklist.csv about which devices a resource has, by name: what the resources of a
// configuration get of the example machine, in their order. The other rows are shown by tests that say so.
func TestParity(t *testing.T) {
	const vf0, vf1, vf2, vf3, intel, second = "0000:81:00.1", "0000:81:00.2", "0000:81:00.3", "0000:81:00.4",
		"0000:82:00.1", "0000:82:00.2"
	const ib, pf, plain, fpga, sf88, sf5 = "0000:83:00.1", "0000:84:00.0", "0000:85:00.0", "0000:87:00.0",
		"mlx5_core.sf.2", "mlx5_core.sf.3"
	one := func(rest string) []string { return []string{`{"resourceName": "a", ` + rest + `}`} }
	for _, c := range []struct {
		row  string
		list []string
		want [][]string
	}{
		{"device-id-pci", one(`"selectors": {"pfNames": ["ens1"]}`), [][]string{{vf0, vf1, vf2, vf3}}},
		{"device-id-aux", one(`"deviceType": "auxNetDevice", "selectors": {"auxTypes": ["sf"]}`),
			[][]string{{sf88, sf5}}},
		{"selectors-missing", one(`"deviceType": "netDevice"`),
			[][]string{{vf0, vf1, vf2, vf3, intel, second, ib, pf, plain}}},
		{"selectors-shape", []string{
			`{"resourceName": "object", "selectors": {"vendors": ["8086"], "drivers": ["ice"]}}`,
			`{"resourceName": "list", "selectors": [{"vendors": ["8086"]}, {"pfNames": ["ens1#0"]}]}`,
			`{"resourceName": "rest", "selectors": [{"linkTypes": ["ether"]}]}`,
		}, [][]string{{intel}, {vf0, plain}, {vf1, vf2, vf3, second, pf}}},
		{"sel-vendors-devices-drivers",
			one(`"selectors": {"vendors": ["15b3"], "devices": ["101e"], "drivers": ["ice"]}`), [][]string{{second}}},
		{"sel-pciAddresses", one(`"selectors": {"pciAddresses": ["0000:81:00.2", "81:00.3"]}`), [][]string{{vf1}}},
		{"sel-acpiIndexes", one(`"selectors": {"acpiIndexes": ["7"]}`), [][]string{{second}}},
		{"sel-pfNames", one(`"selectors": {"pfNames": ["ENS1#0,2-3", "ens1#1", "ens2"]}`),
			[][]string{{vf0, vf2, vf3, intel, second}}},
		{"sel-rootDevices", one(`"selectors": {"rootDevices": ["0000:81:00.0#1-2"]}`), [][]string{{vf1, vf2}}},
		{"sel-linkTypes", one(`"selectors": {"linkTypes": ["infiniband"]}`), [][]string{{ib}}},
		{"sel-isRdma", one(`"selectors": {"IsRdma": true, "drivers": ["ice"]}`), [][]string{{intel, second}}},
		{"sel-pKeys", one(`"selectors": {"pKeys": ["0x8001", "0xffff"]}`), [][]string{{ib}}},
		{"sel-ddp", one(`"selectors": {"ddpProfiles": ["ICE COMMS Package"]}`), [][]string{{intel, second}}},
		{"sel-auxTypes",
			one(`"deviceType": "auxNetDevice", "selectors": {"auxTypes": ["sf"], "pfNames": ["ens4#88"]}`),
			[][]string{{sf88}}},
		{"accelerator-type", one(`"deviceType": "accelerator", "selectors": {"vendors": ["8086"]}`),
			[][]string{{fpga}}},
		{"dev-vdpa", one(`"selectors": {"vdpaType": "vhost"}`), [][]string{{vf0}}},
		// The PFs that have VFs, and nothing with a default route: see TestNodeNeedsNetdev.
		{"excluded-devices",
			one(`"selectors": {"pciAddresses": ["0000:81:00.0", "0000:82:00.0", "0000:83:00.0", "0000:84:00.0", "0000:85:00.0"]}`),
			[][]string{{pf}}},
	} {
		t.Run("sriov/"+c.row, func(t *testing.T) {
			f := Finder{
				Sys:    functions.Example().FS(),
				Prefix: "intel.com",
				DDP:    ddp,
				Routes: func() (Routes, error) { return Routes{}, nil },
			}
			if c.row == "excluded-devices" {
				f.Routes = func() (Routes, error) { return Routes{Main: []string{"ens5"}}, nil }
			}
			pools, _, err := f.Find(config(t, resources(c.list...)))
			if err != nil {
				t.Fatal(err)
			}
			var got [][]string
			for _, pool := range pools {
				got = append(got, ids(pool))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
