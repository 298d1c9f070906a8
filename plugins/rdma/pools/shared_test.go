// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

func sharing(list ...string) string { return `{"configList": [` + strings.Join(list, ",") + `]}` }

// hcas prints what is shared of a pool, as an HCA and the numbers of its replicas.
func hcas(p Pool) []string {
	var lines []string
	for _, d := range p.Devices {
		_, number, _ := strings.Cut(d.ID, "::")
		if last := len(lines) - 1; last >= 0 && strings.HasPrefix(lines[last], d.HCA+" ") {
			lines[last] += " " + number
		} else {
			lines = append(lines, d.HCA+" "+number)
		}
	}
	return lines
}

// What the stock plugin ends over in failure ends this one so too, in one sentence.
func TestSharedConfigErrors(t *testing.T) {
	t.Attr("parity", "shared/config-json")
	const one = `{"resourceName": "a", "rdmaHcaMax": 2, "selectors": {"vendors": ["15b3"]}}`
	for _, c := range []struct{ name, content, want string }{
		{"empty list", sharing(), `configList is empty`},
		{"no name", sharing(`{"selectors": {"vendors": ["15b3"]}}`),
			`resource 1 of configList: resourceName is missing`},
		{"twice", sharing(one, one), `resource "a": resourceName is there twice`},
		{"name", sharing(`{"resourceName": "rdma/a"}`),
			`resource "rdma/a": resourceName may have letters, digits, - and _`},
		{"negative", sharing(`{"resourceName": "a", "rdmaHcaMax": -1}`),
			`resource "a": rdmaHcaMax is -1; want how many containers may share an HCA`},
		{"too many", sharing(`{"resourceName": "a", "rdmaHcaMax": 4294967296}`),
			`resource "a": rdmaHcaMax is 4294967296; want how many containers may share an HCA`},
		{"rdmaHcaMax is a string", sharing(`{"resourceName": "a", "rdmaHcaMax": "63"}`),
			`resource "a": rdmaHcaMax: want a whole number, found string`},
		{"no selector", sharing(`{"resourceName": "a", "rdmaHcaMax": 1, "selectors": {"vendors": []}}`),
			`resource "a": selectors is missing or empty; name what is shared, as {"ifNames": ["ib0"]}`},
		{"both", sharing(`{"resourceName": "a", "devices": ["ib0"], "selectors": {"ifNames": ["ib1"]}}`),
			`resource "a": selectors and devices exclude each other: put devices into selectors, as ifNames`},
		{"a list of selectors", sharing(`{"resourceName": "a", "selectors": [{"ifNames": ["ib1"]}]}`),
			`resource "a": selectors: want an object, found array`},
		{"negative interval", `{"periodicUpdateInterval": -1, "configList": [` + one + `]}`,
			`periodicUpdateInterval is -1; want a number of seconds, or 0 for never`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parseConfig("config.json", []byte(c.content))
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(c.want, err.Error()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSharedConfigWarnings(t *testing.T) {
	t.Attr("parity", "shared/config-json")
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"the stock plugin's example", `{"periodicUpdateInterval": 300, "configList": [
			{"resourceName": "hca_shared_devices_a", "rdmaHcaMax": 1000, "devices": ["ib0", "ib1"]},
			{"resourceName": "hca_shared_devices_b", "rdmaHcaMax": 500,
			 "selectors": {"vendors": ["15b3"], "deviceIDs": ["1017"], "ifNames": ["ib3", "ib4"]}}]}`, nil},
		{"keys of this plugin", sharing(`{"resourceName": "a", "rdmaHcaMax": 1, "devices": ["x"],
			"excludeTopology": true, "checkHealthOnRdmaPort": true, "tandem": {"pairs": true, "allHCAs": true}}`), nil},
		{"misspelt keys", `{"periodicUpdate": 1, "configList": [
			{"resourceName": "a", "hcaMax": 3, "selectors": {"ifNames": ["x"], "devices": ["1017"]}}]}`, []string{
			`key "periodicUpdate" is unknown and ignored: want "periodicUpdateInterval"`,
			`resource "a": key "hcaMax" is unknown and ignored: want "rdmaHcaMax"`,
			`resource "a": rdmaHcaMax is 0 or missing: nothing is offered`,
			`resource "a": selectors: key "devices" is unknown and ignored: want "deviceIDs"`,
		}},
		{"a prefix that the kubelet refuses", sharing(
			`{"resourceName": "a", "resourcePrefix": "example_prefix", "rdmaHcaMax": 1, "devices": ["x"]}`,
			`{"resourceName": "b", "rdmaHcaMax": 1, "devices": ["x"], "tandem": {"pair": true}}`), []string{
			`resource "a" is left out: resourcePrefix "example_prefix" is not a lower-case domain name such as intel.com`,
			`resource "b": tandem: key "pair" is unknown and ignored: want "pairs"`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, config(t, c.text).Warnings); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Whether and how often the machine is looked at again.
func TestSharedInterval(t *testing.T) {
	t.Attr("parity", "shared/periodic-update")
	const list = `"configList": [{"resourceName": "a", "rdmaHcaMax": 1, "devices": ["x"]}]`
	for text, want := range map[string]time.Duration{
		`{` + list + `}`: time.Minute,
		`{"periodicUpdateInterval": 0, ` + list + `}`:   0,
		`{"periodicUpdateInterval": 300, ` + list + `}`: 5 * time.Minute,
		resources(`{"resourceName": "a"}`):              0,
	} {
		if got := config(t, text).Interval; got != want {
			t.Errorf("%s: interval %s, want %s", text, got, want)
		}
	}
}

// Which HCAs of the example machine are shared, and how they are named.
func TestSharedHCAs(t *testing.T) {
	t.Attr("parity", "shared/selectors")
	for _, c := range []struct {
		name string
		list []string
		want map[string][]string
	}{
		{"all of a vendor, PFs with VFs and VFs too",
			[]string{`{"resourceName": "a", "rdmaHcaMax": 1, "selectors": {"vendors": ["15b3"], "drivers": ["mlx5_core"]}}`},
			map[string][]string{"rdma/a": {
				"0000:81:00.0 0", "0000:81:00.1 0", "0000:81:00.2 0", "0000:81:00.3 0", "0000:81:00.4 0",
				"0000:83:00.0 0", "0000:83:00.1 0", "0000:84:00.0 0",
			}}},
		{"netdevs, in the older word", []string{`{"resourceName": "a", "rdmaHcaMax": 3, "devices": ["ens1", "ens4"]}`},
			map[string][]string{"rdma/a": {"0000:81:00.0 0 1 2", "0000:84:00.0 0 1 2"}}},
		{"link type", []string{`{"resourceName": "a", "rdmaHcaMax": 1, "selectors": {"linkTypes": ["infiniband"], "ifNames": ["ibs3"]}}`},
			map[string][]string{"rdma/a": {"0000:83:00.0 0"}}},
		{"device ID", []string{`{"resourceName": "a", "rdmaHcaMax": 1, "resourcePrefix": "x.y", "selectors": {"deviceIDs": ["1021"]}}`},
			map[string][]string{"x.y/a": {"0000:81:00.0 0", "0000:82:00.0 0"}}},
		{"in two resources", []string{
			`{"resourceName": "a", "rdmaHcaMax": 2, "selectors": {"ifNames": ["ens1"]}}`,
			`{"resourceName": "b", "rdmaHcaMax": 2, "selectors": {"ifNames": ["ens1", "ens4"]}}`,
		}, map[string][]string{
			"rdma/a": {"0000:81:00.0 0 1"}, "rdma/b": {"0000:81:00.0.b 2 3", "0000:84:00.0 2 3"},
		}},
		{"without RDMA", []string{`{"resourceName": "a", "rdmaHcaMax": 1, "selectors": {"ifNames": ["ens5"]}}`},
			map[string][]string{"rdma/a": nil}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := map[string][]string{}
			for _, pool := range discover(t, functions.Example().FS(), sharing(c.list...)) {
				got[pool.Name] = hcas(pool)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// One file may be for both stock plugins: neither takes from the other, as on a node that has both.
func TestBothLists(t *testing.T) {
	pools := discover(t, functions.Example().FS(), `{
		"resourceList": [{"resourceName": "vf", "selectors": {"pfNames": ["ens1#0"]}}],
		"configList": [{"resourceName": "hca", "rdmaHcaMax": 1, "selectors": {"ifNames": ["ens1"]}}]}`)
	if len(pools) != 2 || pools[0].Name != "intel.com/vf" || pools[1].Name != "rdma/hca" ||
		len(pools[0].Devices) != 1 || len(pools[1].Devices) != 1 {
		t.Errorf("pools %+v", pools)
	}
}

// What is wrong with the machine is said: netdevs that are not there, an HCA that no program can use, more
// devices than can be.
func TestSharedFaults(t *testing.T) {
	s := functions.Example()
	s.Remove(functions.Dir("0000:84:00.0") + "/infiniband_verbs")
	f := Finder{Sys: s.FS(), Prefix: "intel.com"}
	pools, warnings, err := f.Find(config(t,
		sharing(`{"resourceName": "a", "rdmaHcaMax": 9000, "selectors": {"ifNames": ["ens1", "ens4", "ens9"]}}`)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{
		`resource "a": ifNames: no HCA has the netdev "ens9"`,
		`resource "a": rdmaHcaMax: a resource has 8192 devices at most: each of its 2 HCAs is offered 4096 times`,
	}, warnings); diff != "" {
		t.Error(diff)
	}
	devices := pools[0].Devices
	if len(devices) != MaxReplicas || devices[0].Fault != "" ||
		devices[MaxReplicas-1].Fault != "no uverbs device: load the kernel module ib_uverbs" {
		t.Errorf("%d devices, the last %+v", len(devices), devices[len(devices)-1])
	}
}

// On every recorded machine all HCAs are shared, each on its own, where it hangs, and healthy.
func TestSharedOnRecordedMachines(t *testing.T) {
	for _, name := range machines.Names() {
		t.Run(name, func(t *testing.T) {
			sys, _ := load(t, name, 0)
			pools := discover(t, sys, sharing(`{"resourceName": "a", "rdmaHcaMax": 2, "selectors": {"linkTypes": ["ether", "infiniband"]}}`))
			tree, err := topology.Read(sys)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for d := range tree.Devices() {
				if d.Class.IsNetwork() && d.Driver != "" && len(d.RDMA) > 0 && len(d.Netdevs) > 0 {
					want = append(want, fmt.Sprintf("%s::0", d.Address), fmt.Sprintf("%s::1", d.Address))
				}
			}
			if diff := cmp.Diff(want, ids(pools[0])); diff != "" {
				t.Error(diff)
			}
			wrong := func(d Device) bool { return d.Fault != "" || d.ID == d.Name() }
			if slices.ContainsFunc(pools[0].Devices, wrong) {
				t.Errorf("devices %+v", pools[0].Devices)
			}
		})
	}
}

// The unit of a device is the function or the sub-function, whatever the number of a replica.
func TestUnit(t *testing.T) {
	t.Parallel()
	pf, vf := topology.Address{Bus: 0xc}, topology.Address{Bus: 0xc, Function: 1}
	for _, c := range []struct {
		d    Device
		want topology.Unit
	}{
		{Device{ID: "0000:0c:00.1", Address: vf, PF: pf}, topology.Unit{Name: "0000:0c:00.1"}},
		{Device{ID: "sf.3", Address: pf, Aux: "sf.3"}, topology.Unit{Name: "0000:0c:00.0/sf.3"}},
		{
			Device{ID: "0000:0c:00.0::3", Address: pf, HCA: "hca"},
			topology.Unit{Name: "0000:0c:00.0", Shared: true},
		},
	} {
		if got := c.d.Unit(); got != c.want {
			t.Errorf("the unit of %s is %v, want %v", c.d.ID, got, c.want)
		}
	}
}
