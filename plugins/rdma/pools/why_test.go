// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/test/machines"
)

// explained is a line for each selector.
func explained(t *testing.T, f Finder, c *Config) string {
	t.Helper()
	choices, err := f.Explain(c)
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for _, c := range choices {
		fmt.Fprintf(&lines, "%s %d/%d: %d, not %d", c.Resource, c.Selector, c.Of, c.Selected, c.Rejected)
		if c.Rejected > 0 {
			fmt.Fprintf(&lines, ": %s", c.Summary())
		}
		for _, miss := range c.Nearest {
			fmt.Fprintf(&lines, "\n  %s", miss)
		}
		fmt.Fprintln(&lines)
	}
	return lines.String()
}

func TestExplain(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
	}{
		{"all", resources(`{"resourceName": "a"}`), `x/a 1/1: 9, not 0
`},
		{"two values are wrong",
			resources(`{"resourceName": "a", "selectors": {"devices": ["1017"], "drivers": ["mlx5_ib"]}}`),
			`x/a 1/1: 0, not 9: devices 9, drivers 9
  0000:81:00.1: devices: want 1017, it has 101e; drivers: want mlx5_ib, it has mlx5_core (and 8 more)
`},
		{"a driver is misspelt",
			resources(`{"resourceName": "a", "selectors": {"drivers": ["mlx5-core", "ice"]}}`),
			`x/a 1/1: 2, not 7: drivers 7 (7 alone)
  0000:81:00.1: drivers: want mlx5-core (did you mean mlx5_core?) or ice, it has mlx5_core (and 6 more)
`},
		{"a driver that the machine lacks is misspelt",
			resources(`{"resourceName": "a", "selectors": {"devices": ["101e"], "drivers": ["bnxt_eth"]}}`),
			`x/a 1/1: 0, not 9: devices 2, drivers 9 (7 alone)
  0000:81:00.1: drivers: want bnxt_eth (did you mean bnxt_en?), it has mlx5_core (and 6 more)
`},
		{"a PF is described",
			resources(`{"resourceName": "a", "selectors": {"devices": ["1021"], "drivers": ["mlx5_core"]}}`),
			`x/a 1/1: 0, not 10: in use 1 (1 alone), devices 9 (6 alone), drivers 3
  0000:81:00.1: devices: want 1021, it has 101e (and 5 more)
  0000:81:00.0: it is a PF that has VFs
`},
		{"one value is wrong", resources(`{"resourceName": "a", "selectors": {"vendors": ["0x8086"], "drivers": ["ice"]}}`),
			`x/a 1/1: 0, not 9: vendors 9 (2 alone), drivers 7
  0000:82:00.1: vendors: want 0x8086, it has 8086 (and 1 more)
`},
		{"numbers", resources(`{"resourceName": "a", "selectors": {"pfNames": ["ens1#0-1", "ens2#1"], "isRdma": true}}`),
			`x/a 1/1: 3, not 5: pfNames 5 (5 alone)
  0000:81:00.3: pfNames: want ens1#0-1 or ens2#1, it has ens1#2 (and 4 more)
`},
		{"taken by another, and by the selector before", resources(
			`{"resourceName": "a", "selectors": [{"pfNames": ["ens1#0"]}, {"pfNames": ["ens1#0-2"]}]}`,
			`{"resourceName": "b", "selectors": {"pfNames": ["ens1"]}}`),
			`x/a 1/2: 1, not 8: pfNames 8 (8 alone)
  0000:81:00.2: pfNames: want ens1#0, it has ens1#1 (and 7 more)
x/a 2/2: 2, not 6: pfNames 6 (6 alone)
  0000:81:00.4: pfNames: want ens1#0-2, it has ens1#3 (and 5 more)
x/b 1/1: 1, not 8: taken 3 (3 alone), pfNames 5 (5 alone)
  0000:81:00.1: x/a has it (and 2 more)
  0000:82:00.1: pfNames: want ens1, it has ens2#0 (and 4 more)
`},
		{"nothing but taken", resources(`{"resourceName": "a"}`, `{"resourceName": "b"}`),
			`x/a 1/1: 9, not 0
x/b 1/1: 0, not 9: taken 9 (9 alone)
  0000:81:00.1: x/a has it (and 8 more)
`},
		{"by address", resources(`{"resourceName": "a", "selectors": {"pciAddresses": ["0000:85:00.0"]}}`),
			`x/a 1/1: 1, not 8: pciAddresses 8 (8 alone)
  0000:81:00.1: pciAddresses: want 0000:85:00.0, it has 0000:81:00.1 (and 7 more)
`},
		{"a PF that is named", resources(`{"resourceName": "a", "selectors": {"pciAddresses": ["0000:81:00.0"], "isRdma": true}}`),
			`x/a 1/1: 0, not 9: in use 1 (1 alone), pciAddresses 8 (8 alone)
  0000:81:00.0: it is a PF that has VFs
  0000:81:00.1: pciAddresses: want 0000:81:00.0, it has 0000:81:00.1 (and 7 more)
`},
		{"sub-functions", resources(`{"resourceName": "a", "deviceType": "auxNetDevice", "selectors": {"auxTypes": ["sf"], "pfNames": ["ens4#88", "e1", "e2", "e3", "e4"]}}`),
			`x/a 1/1: 1, not 1: pfNames 1 (1 alone)
  mlx5_core.sf.3: pfNames: want ens4#88, e1, e2, e3 or 1 more, it has ens4#5
`},
		{"an accelerator", resources(`{"resourceName": "a", "deviceType": "accelerator", "selectors": {"vendors": ["15b3"]}}`),
			`x/a 1/1: 0, not 1: vendors 1 (1 alone)
  0000:87:00.0: vendors: want 15b3, it has 8086
`},
		{"vDPA", resources(`{"resourceName": "a", "selectors": {"vdpaType": "vhost", "vendors": ["15b3"], "pfNames": ["ens1"]}}`),
			`x/a 1/1: 1, not 8: vendors 2, pfNames 5, vdpaType 8 (3 alone)
  0000:81:00.2: vdpaType: want vhost, it has virtio (and 2 more)
`},
		{"HCAs", sharing(`{"resourceName": "a", "rdmaHcaMax": 2, "selectors": {"ifNames": ["ens1"], "deviceIDs": ["101e"]}}`),
			`rdma/a 1/1: 0, not 11: deviceIDs 3 (1 alone), ifNames 10 (8 alone)
  0000:81:00.0: deviceIDs: want 101e, it has 1021
  0000:83:00.0: ifNames: want ens1, it has ibs3 (and 7 more)
`},
		{"an HCA without RDMA", sharing(`{"resourceName": "a", "rdmaHcaMax": 2, "selectors": {"vendors": ["8086"], "ifNames": ["ens5"]}}`),
			`rdma/a 1/1: 0, not 12: no RDMA device 1 (1 alone), vendors 10, ifNames 11 (1 alone)
  0000:85:00.0: it has no RDMA device
  0000:82:00.1: ifNames: want ens5, it has ens2v0
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := Finder{Sys: functions.Example().FS(), Prefix: "x", DDP: ddp}
			if diff := cmp.Diff(c.want, explained(t, f, config(t, c.text))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What keeps a VF from any resource: it has no driver, no RDMA device, or the node needs it.
func TestExplainBrokenVFs(t *testing.T) {
	s := functions.Example()
	s.Remove(functions.Dir("0000:81:00.1") + "/driver")
	s.Remove(functions.Dir("0000:81:00.1") + "/infiniband")
	s.Remove(functions.Dir("0000:81:00.2") + "/infiniband")
	f := Finder{Sys: s.FS(), Prefix: "x"}
	f.Routes = func() (Routes, error) { return Routes{Main: []string{"ens1v2"}}, nil }
	got := explained(t, f, config(t, resources(
		`{"resourceName": "a", "selectors": {"isRdma": true, "drivers": ["mlx5_core"], "pfNames": ["ens1"]}}`)))
	const want = `x/a 1/1: 1, not 7: no driver 1 (1 alone), in use 1 (1 alone), drivers 2, pfNames 4 (2 alone), isRdma 1 (1 alone)
  0000:81:00.1: it has no driver
  0000:81:00.3: the node itself needs its netdev
  0000:81:00.2: isRdma: want an RDMA device, it has none
  0000:83:00.1: pfNames: want ens1, it has ibs3#0 (and 1 more)
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// On recorded machines what is selected is what Find finds, and a pool of every VF rejects nothing.
func TestExplainAgrees(t *testing.T) {
	for _, name := range machines.Names() {
		t.Run(name, func(t *testing.T) {
			sys, vfs := load(t, name, 2)
			f := Finder{Sys: sys, Prefix: "x"}
			c := config(t, `{"resourceList": [
				{"resourceName": "few", "selectors": [{"vendors": ["15b3"], "isRdma": true}, {"linkTypes": ["ether"]}]},
				{"resourceName": "rest"}], "configList": [
				{"resourceName": "hca", "rdmaHcaMax": 1, "selectors": {"linkTypes": ["ether"], "vendors": ["15b3"]}}]}`)
			pools, _, err := f.Find(c)
			if err != nil {
				t.Fatal(err)
			}
			choices, err := f.Explain(c)
			if err != nil {
				t.Fatal(err)
			}
			selected := map[string]int{}
			for _, choice := range choices {
				selected[choice.Resource] += choice.Selected
				if near := len(choice.Nearest) > 0; near != (choice.Rejected > 0) {
					t.Errorf("%s: nearest miss %v of %s", choice.Resource, choice.Nearest, choice.Summary())
				}
			}
			for _, pool := range pools {
				if got := selected[pool.Name]; got != len(pool.Devices) {
					t.Errorf("%s: %d are explained, %d found", pool.Name, got, len(pool.Devices))
				}
			}
			every, err := f.Explain(config(t, resources(`{"resourceName": "a", "selectors": {"isRdma": true}}`)))
			if err != nil {
				t.Fatal(err)
			}
			if len(vfs) > 0 && every[0].Rejected > 0 {
				t.Errorf("every VF: %s; %v", every[0].Summary(), every[0].Nearest)
			}
		})
	}
}
