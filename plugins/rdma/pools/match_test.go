// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/topology"
)

// What selectors of each kind of devices select, beside the rows of TestParity.
func TestSelectors(t *testing.T) {
	const (
		vf0, vf1, vf2, vf3 = "0000:81:00.1", "0000:81:00.2", "0000:81:00.3", "0000:81:00.4"
		intel, second      = "0000:82:00.1", "0000:82:00.2"
		ib, pf, plain      = "0000:83:00.1", "0000:84:00.0", "0000:85:00.0"
		qat                = "0000:87:00.0"
		sf2, sf3           = "mlx5_core.sf.2", "mlx5_core.sf.3"
	)
	for _, c := range []struct {
		kind      DeviceType
		selectors string
		want      []string
	}{
		{NetDevice, `{}`, []string{vf0, vf1, vf2, vf3, intel, second, ib, pf, plain}},
		{NetDevice, `null`, []string{vf0, vf1, vf2, vf3, intel, second, ib, pf, plain}},
		{NetDevice, `{"vendors": ["8086"]}`, []string{intel, plain}},
		{NetDevice, `{"vendors": ["0x8086"]}`, nil},
		{NetDevice, `{"devices": ["1889", "10d3"]}`, []string{intel, plain}},
		{NetDevice, `{"drivers": [""]}`, nil},
		{NetDevice, `{"pciAddresses": ["0000:81:00.2", "0000:85:00.0", "0000:81:00.0"]}`, []string{vf1, plain}},
		{NetDevice, `{"pciAddresses": ["81:00.2"]}`, nil},
		{NetDevice, `{"pfNames": ["ENS1#0-1"]}`, []string{vf0, vf1}},
		{NetDevice, `{"pfNames": ["ens1#0", "ens1#1-3"]}`, []string{vf0}},
		{NetDevice, `{"pfNames": ["ens1#3", "ens2#1"]}`, []string{vf3, second}},
		{NetDevice, `{"pfNames": ["ens4", "ens9"]}`, nil},
		{NetDevice, `{"pfNames": ["ens1#3-0"]}`, nil},
		{NetDevice, `{"rootDevices": ["0000:82:00.0"]}`, []string{intel, second}},
		{NetDevice, `{"linkTypes": ["ether"]}`, []string{vf0, vf1, vf2, vf3, intel, second, pf, plain}},
		{NetDevice, `{"pKeys": ["0xffff"]}`, nil},
		{NetDevice, `{"isRdma": true}`, []string{vf0, vf1, vf2, vf3, intel, second, ib, pf}},
		{NetDevice, `{"isRdma": false, "vendors": ["8086"]}`, []string{intel, plain}},
		{NetDevice, `{"vdpaType": "virtio"}`, []string{vf1}},
		{NetDevice, `{"vdpaType": "other"}`, nil},
		{NetDevice, `{"ddpProfiles": ["gtp"]}`, nil},
		{NetDevice, `{"needVhostNet": true, "drivers": ["e1000e"]}`, []string{plain}},
		// Every condition of an object, any object of a list.
		{NetDevice, `{"vendors": ["8086"], "drivers": ["ice"]}`, []string{intel}},
		{NetDevice, `{"vendors": ["8086"], "linkTypes": ["infiniband"]}`, nil},
		{NetDevice, `[{"drivers": ["e1000e"]}, {"pfNames": ["ens1#0"]}]`, []string{vf0, plain}},
		{AuxNetDevice, `{"auxTypes": ["sf"], "vendors": ["15b3"], "devices": ["101e"], "drivers": ["mlx5_core"]}`,
			[]string{sf2, sf3}},
		{AuxNetDevice, `{"auxTypes": ["sf"], "devices": ["1021"]}`, nil},
		{AuxNetDevice, `{"auxTypes": ["sf"], "pfNames": ["ENS4#80-90"]}`, []string{sf2}},
		{AuxNetDevice, `{"auxTypes": ["sf"], "rootDevices": ["0000:84:00.0#0-5"]}`, []string{sf3}},
		{AuxNetDevice, `{"auxTypes": ["sf"], "rootDevices": ["0000:81:00.0"]}`, nil},
		{AuxNetDevice, `{"auxTypes": ["sf"], "linkTypes": ["ether"]}`, []string{sf2, sf3}},
		{AuxNetDevice, `{"auxTypes": ["sf"], "linkTypes": ["infiniband"]}`, nil},
		{AuxNetDevice, `{"auxTypes": ["sf"], "isRdma": true}`, []string{sf2, sf3}},
		// No key of sub-functions, or of accelerators: ignored.
		{AuxNetDevice, `{"auxTypes": ["sf"], "pciAddresses": ["0000:81:00.1"]}`, []string{sf2, sf3}},
		{Accelerator, `{"isRdma": true}`, []string{qat}},
		{Accelerator, `{"vendors": ["8086"], "devices": ["4940"], "drivers": ["qat"], "pciAddresses": ["0000:87:00.0"]}`,
			[]string{qat}},
		{Accelerator, `{"vendors": ["15b3"]}`, nil},
	} {
		t.Run(string(c.kind)+" "+c.selectors, func(t *testing.T) {
			list := resources(fmt.Sprintf(`{"resourceName": "a", "deviceType": %q, "selectors": %s}`, c.kind, c.selectors))
			f := Finder{Sys: functions.Example().FS(), Prefix: "intel.com", DDP: ddp}
			pools, _, err := f.Find(config(t, list))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, ids(pools[0])); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// ddp is a kernel that knows the DDP package of one NIC by its PF.
func ddp(_, pf topology.Address) string {
	if pf.Bus == 0x82 {
		return "ICE COMMS Package"
	}
	return ""
}

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

// amdNICs is what the values of AMD's chart make of the config.json of its network device plugin
// (helm-charts-k8s/values.yaml in ROCm/k8s-network-device-plugin), with the check of health.
const amdNICs = `{"resourceList": [
	{"deviceType": "", "resourceName": "nic", "resourcePrefix": "amd.com", "enableExporterHealthCheck": true,
	 "disableDeviceConfig": false, "excludeTopology": false,
	 "selectors": {"vendors": ["1dd8"], "devices": ["1002"], "drivers": ["ionic"], "isRdma": true}},
	{"resourceName": "vnic", "resourcePrefix": "amd.com", "enableExporterHealthCheck": false,
	 "disableDeviceConfig": true, "excludeTopology": false,
	 "selectors": {"vendors": ["1dd8"], "devices": ["1003"], "drivers": ["ionic"], "isRdma": true}}]}`

// pollara is a machine with a NIC of two PFs, the second of which has a VF.
func pollara() functions.Sysfs {
	s := functions.New()
	ionic := functions.Facts{"vendor": "0x1dd8", "device": "0x1002", "driver": "ionic"}
	function := func(address, netdev, rdma string, more functions.Facts) {
		given := maps.Clone(ionic)
		maps.Copy(given, more)
		given["netdev"] = netdev
		s.Function(address, given)
		s.RDMA(address, "ionic_"+rdma, rdma)
	}
	function("0000:06:00.0", "enp6s0", "0", functions.Facts{"sriov_numvfs": "0"})
	function("0000:23:00.0", "enp35s0", "1", functions.Facts{"sriov_numvfs": "0"})
	function("0000:43:00.0", "enp67s0", "2", functions.Facts{"sriov_numvfs": "1"})
	s.Symlink(functions.Dir("0000:43:00.0")+"/virtfn0", "../0000:43:00.1")
	function("0000:43:00.1", "enp67s0v0", "3", functions.Facts{"device": "0x1003", "pf": "0000:43:00.0"})
	return s
}

// AMD's resources are those of the SR-IOV plugin that its own is made from. What the metrics exporter says
// counts where the resource asks for it; what it does not say, and what cannot be asked, counts for nothing.
func TestAMDNICs(t *testing.T) {
	t.Attr("parity", "amdnic/config-json")
	t.Attr("parity", "amdnic/health-exporter")
	const ill = "unhealthy for the metrics exporter"
	for _, c := range []struct {
		name     string
		told     map[string]bool
		err      error
		nics     map[string]string // with their faults
		warnings []string
	}{
		{"no exporter", nil, nil, map[string]string{"0000:06:00.0": "", "0000:23:00.0": ""}, nil},
		{"one is ill", map[string]bool{"0000:06:00.0": true, "0000:23:00.0": false, "0000:43:00.1": false}, nil,
			map[string]string{"0000:06:00.0": "", "0000:23:00.0": ill}, nil},
		{"it does not know one", map[string]bool{"0000:06:00.0": false}, nil,
			map[string]string{"0000:06:00.0": ill, "0000:23:00.0": ""}, nil},
		{"it hangs", nil, errors.New("ask /s: DeadlineExceeded"),
			map[string]string{"0000:06:00.0": "", "0000:23:00.0": ""},
			[]string{"enableExporterHealthCheck: NICs count as healthy: ask /s: DeadlineExceeded"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			parsed := config(t, amdNICs)
			f := Finder{
				Sys: pollara().FS(), Prefix: "intel.com",
				Exporter: func() (map[string]bool, error) { return c.told, c.err },
			}
			pools, warnings, err := f.Find(parsed)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.warnings, append(parsed.Warnings, warnings...)); diff != "" {
				t.Error(diff)
			}
			got := map[string]map[string]string{}
			for _, pool := range pools {
				got[pool.Name] = map[string]string{}
				for _, d := range pool.Devices {
					got[pool.Name][d.ID] = d.Fault
				}
			}
			want := map[string]map[string]string{"amd.com/nic": c.nics, "amd.com/vnic": {"0000:43:00.1": ""}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Nobody is asked where no resource wants it.
func TestExporterIsNotAsked(t *testing.T) {
	f := Finder{Sys: pollara().FS(), Prefix: "amd.com", Exporter: func() (map[string]bool, error) {
		t.Error("asked")
		return nil, nil
	}}
	if _, _, err := f.Find(config(t, resources(`{"resourceName": "nic"}`))); err != nil {
		t.Error(err)
	}
}
