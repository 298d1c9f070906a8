// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"errors"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/functions"
)

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
