// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
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
