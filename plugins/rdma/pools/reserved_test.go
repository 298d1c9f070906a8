// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/topology"
)

// TestReserved: what is needed for the node's own network, or manages NVSwitches, is offered only if a
// selector names its address, with a warning; the netdev of the default route itself never is.
func TestReserved(t *testing.T) {
	bonded := functions.New()
	for i, netdev := range []string{"ens1f0", "ens1f1", "ens2"} {
		address := []string{"0000:17:00.0", "0000:17:00.1", "0000:29:00.0"}[i]
		bonded.Function(address, functions.Facts{"netdev": netdev})
	}
	bonded.Subfunction("0000:29:00.0", "mlx5_core.sf.2", "88", "ens2s88", "")
	bonded.Symlink("class/net/ens2s88", "../../"+functions.Dir("0000:29:00.0")+"/mlx5_core.sf.2/net/ens2s88")
	bonded.Upper("bond0", "ens1f0", "ens1f1")
	bonded.Upper("br-ex", "bond0")
	bonded.Upper("ovs-system", "ens1f0")
	const all = `{"resourceName": "a"}`
	const named = `{"resourceName": "a", "selectors": {"pciAddresses": ["0000:17:00.0", "0000:73:00.0"]}}`
	const auxiliary = `{"resourceName": "a", "deviceType": "auxNetDevice", "selectors": {"auxTypes": ["sf"]}}`
	for _, c := range []struct {
		name     string
		sys      functions.Sysfs
		routes   Routes
		resource string
		want     []string
		warning  string // part of the only warning
	}{
		{"ports of a bond", bonded, Routes{Main: []string{"bond0"}}, all, []string{"0000:29:00.0"}, ""},
		{"ports of a bond in a bridge", bonded, Routes{Main: []string{"br-ex"}}, all, []string{"0000:29:00.0"}, ""},
		{"ports of Open vSwitch", bonded, Routes{Main: []string{"br-int", "ovs-system"}}, all,
			[]string{"0000:17:00.1", "0000:29:00.0"}, ""},
		{"a named port", bonded, Routes{Main: []string{"bond0"}}, named, []string{"0000:17:00.0"},
			`"ens1f0" is below "bond0"`},
		{"a named netdev of the route", bonded, Routes{Main: []string{"ens1f0", "bond0"}}, named, nil, ""},
		{"a sub-function", bonded, Routes{Main: []string{"ens2s88"}}, auxiliary, nil, ""},
		{"another sub-function", bonded, Routes{}, auxiliary, []string{"mlx5_core.sf.2"}, ""},
		{"another table", bonded, Routes{Main: []string{"bond0"}, Other: []string{"ens2"}}, all,
			[]string{"0000:29:00.0"}, `0000:29:00.0: its netdev "ens2" has a default route`},
		{"both tables", bonded, Routes{Main: []string{"ens2"}, Other: []string{"ens2"}}, all,
			[]string{"0000:17:00.0", "0000:17:00.1"}, ""},
		{"functions that manage nothing", functions.ConnectX7(), Routes{}, all,
			slices.Concat(functions.Bridges, []string{"0000:75:00.0"}), ""},
		{"functions that manage NVSwitches", functions.ConnectX7(functions.Bridges...), Routes{}, all,
			[]string{"0000:75:00.0"}, ""},
		{"one function of two that manages NVSwitches", functions.ConnectX7(functions.Bridges[0]), Routes{}, all,
			[]string{functions.Bridges[1], "0000:75:00.0"}, ""},
		{"a named one", functions.ConnectX7(functions.Bridges...), Routes{}, named, []string{"0000:73:00.0"},
			"manages the node's NVSwitches"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := Finder{Sys: c.sys.FS(), Prefix: "x", Routes: func() (Routes, error) { return c.routes, nil }}
			pools, warnings, err := f.Find(config(t, resources(c.resource)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, ids(pools[0])); diff != "" {
				t.Error(diff)
			}
			text := strings.Join(warnings, "\n")
			if (text != "") != (c.warning != "") || !strings.Contains(text, c.warning) {
				t.Errorf("warnings %q; want %q", text, c.warning)
			}
		})
	}
	shared := discover(t, functions.ConnectX7(functions.Bridges...).FS(),
		sharing(`{"resourceName": "a", "rdmaHcaMax": 1, "selectors": {"vendors": ["15b3"]}}`))
	if diff := cmp.Diff([]string{"0000:75:00.0::0"}, ids(shared[0])); diff != "" {
		t.Errorf("functions that manage NVSwitches, shared: %s", diff)
	}
}

// TestUnpassableNames: a VF whose RDMA device has a name that no container can be told is unhealthy with
// the reason: its container would get it without device nodes.
func TestUnpassableNames(t *testing.T) {
	const vf = "0000:81:00.1"
	for _, name := range []string{"x,mlx5_0", "mlx\xff", "all:1", "mlx5_*", "^mlx5", "-f", "a b", "a\nb"} {
		s := functions.New()
		s.PF(0x81, "ens1", 1, nil)
		s.Remove(functions.Dir(vf) + "/infiniband")
		s.Write(functions.Dir(vf)+"/infiniband/"+name+"/node_type", "1: CA")
		pools, err := poolsOf(s.FS(), Default(), "x")
		if err != nil {
			t.Fatal(err)
		}
		if d := pools[0].Devices; len(d) != 1 || !strings.Contains(d[0].Fault, "rename it") {
			t.Errorf("RDMA device %q: %+v", name, d)
		}
	}
}

// TestNoUverbs: a container of a VF with an RDMA device needs its uverbs device, and the node of that on the
// host.
func TestNoUverbs(t *testing.T) {
	s := functions.New()
	s.PF(0x81, "ens1", 3, nil)
	s.Remove(functions.Dir("0000:81:00.1") + "/infiniband_verbs")
	names := topology.Names(s.FS(), functions.Dir("0000:81:00.3")+"/infiniband_verbs")
	if len(names) != 1 {
		t.Fatalf("uverbs devices %q", names)
	}
	dev := fstest.MapFS{"null": {}, "infiniband/" + names[0]: {}}
	found, _, err := Finder{Sys: s.FS(), Prefix: "x", Dev: dev}.Find(Default())
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"no uverbs device: load the kernel module ib_uverbs", "no device node /dev/infiniband/uverbs", "",
	} {
		if d := found[0].Devices[i]; !strings.HasPrefix(d.Fault, want) || (d.Fault != "") != (want != "") {
			t.Errorf("%s: %q, want %q", d.ID, d.Fault, want)
		}
	}
}
