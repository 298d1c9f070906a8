// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/topology"
)

func TestSelectors(t *testing.T) {
	const (
		vf0, vf1, vf2, vf3 = "0000:81:00.1", "0000:81:00.2", "0000:81:00.3", "0000:81:00.4"
		intel, second      = "0000:82:00.1", "0000:82:00.2"
		ib, pf, plain      = "0000:83:00.1", "0000:84:00.0", "0000:85:00.0"
	)
	sys := functions.Example().FS()
	for _, c := range []struct {
		selectors string
		want      []string
	}{
		{`{}`, []string{vf0, vf1, vf2, vf3, intel, second, ib, pf, plain}},
		{`null`, []string{vf0, vf1, vf2, vf3, intel, second, ib, pf, plain}},
		{`{"vendors": ["8086"]}`, []string{intel, plain}},
		{`{"vendors": ["0x8086"]}`, nil},
		{`{"devices": ["1889", "10d3"]}`, []string{intel, plain}},
		{`{"drivers": ["ice"]}`, []string{intel, second}},
		{`{"drivers": [""]}`, nil},
		{`{"pciAddresses": ["0000:81:00.2", "0000:85:00.0", "0000:81:00.0"]}`, []string{vf1, plain}},
		{`{"pciAddresses": ["81:00.2"]}`, nil},
		{`{"acpiIndexes": ["7"]}`, []string{second}},
		{`{"pfNames": ["ens1"]}`, []string{vf0, vf1, vf2, vf3}},
		{`{"pfNames": ["ENS1#0-1"]}`, []string{vf0, vf1}},
		{`{"pfNames": ["ens1#0,2-3"]}`, []string{vf0, vf2, vf3}},
		{`{"pfNames": ["ens1#0", "ens1#1-3"]}`, []string{vf0}},
		{`{"pfNames": ["ens1#3", "ens2#1"]}`, []string{vf3, second}},
		{`{"pfNames": ["ens4", "ens9"]}`, nil},
		{`{"pfNames": ["ens1#3-0"]}`, nil},
		{`{"rootDevices": ["0000:81:00.0#1"]}`, []string{vf1}},
		{`{"rootDevices": ["0000:82:00.0"]}`, []string{intel, second}},
		{`{"linkTypes": ["infiniband"]}`, []string{ib}},
		{`{"linkTypes": ["ether"]}`, []string{vf0, vf1, vf2, vf3, intel, second, pf, plain}},
		{`{"pKeys": ["0x8001"]}`, []string{ib}},
		{`{"pKeys": ["0xffff"]}`, nil},
		{`{"isRdma": true}`, []string{vf0, vf1, vf2, vf3, intel, second, ib, pf}},
		{`{"isRdma": false, "vendors": ["8086"]}`, []string{intel, plain}},
		{`{"vdpaType": "vhost"}`, []string{vf0}},
		{`{"vdpaType": "virtio"}`, []string{vf1}},
		{`{"vdpaType": "other"}`, nil},
		{`{"ddpProfiles": ["ICE COMMS Package"]}`, []string{intel, second}},
		{`{"ddpProfiles": ["gtp"]}`, nil},
		{`{"needVhostNet": true, "drivers": ["e1000e"]}`, []string{plain}},
		// Every condition of an object, any object of a list.
		{`{"vendors": ["8086"], "drivers": ["ice"]}`, []string{intel}},
		{`{"vendors": ["8086"], "linkTypes": ["infiniband"]}`, nil},
		{`[{"drivers": ["e1000e"]}, {"pfNames": ["ens1#0"]}]`, []string{vf0, plain}},
	} {
		t.Run(c.selectors, func(t *testing.T) {
			pools, _, err := Finder{
				Sys: sys, Prefix: "intel.com", DDP: ddp,
			}.Find(config(t, resources(`{"resourceName": "a", "selectors": `+c.selectors+`}`)))
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

func TestSubfunctions(t *testing.T) {
	const first, second = "mlx5_core.sf.2", "mlx5_core.sf.3"
	for _, c := range []struct {
		selectors string
		want      []string
	}{
		{`{"auxTypes": ["sf"]}`, []string{first, second}},
		{`{"auxTypes": ["sf"], "vendors": ["15b3"], "devices": ["101e"], "drivers": ["mlx5_core"]}`,
			[]string{first, second}},
		{`{"auxTypes": ["sf"], "devices": ["1021"]}`, nil},
		{`{"auxTypes": ["sf"], "pfNames": ["ENS4#80-90"]}`, []string{first}},
		{`{"auxTypes": ["sf"], "rootDevices": ["0000:84:00.0#0-5"]}`, []string{second}},
		{`{"auxTypes": ["sf"], "rootDevices": ["0000:81:00.0"]}`, nil},
		{`{"auxTypes": ["sf"], "linkTypes": ["ether"]}`, []string{first, second}},
		{`{"auxTypes": ["sf"], "linkTypes": ["infiniband"]}`, nil},
		{`{"auxTypes": ["sf"], "isRdma": true}`, []string{first, second}},
		// no key of sub-functions: ignored
		{`{"auxTypes": ["sf"], "pciAddresses": ["0000:81:00.1"]}`, []string{first, second}},
	} {
		list := resources(`{"resourceName": "a", "deviceType": "auxNetDevice", "selectors": ` + c.selectors + `}`)
		pools, err := poolsOf(functions.Example().FS(), config(t, list), "intel.com")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, ids(pools[0])); diff != "" {
			t.Errorf("%s: %s", c.selectors, diff)
		}
	}
}

func TestAccelerators(t *testing.T) {
	for _, c := range []struct {
		selectors string
		want      []string
	}{
		{`{}`, []string{"0000:87:00.0"}},
		{`{"vendors": ["8086"], "devices": ["4940"], "drivers": ["qat"], "pciAddresses": ["0000:87:00.0"]}`,
			[]string{"0000:87:00.0"}},
		{`{"vendors": ["15b3"]}`, nil},
		{`{"isRdma": true}`, []string{"0000:87:00.0"}}, // no key of accelerators: ignored
	} {
		list := resources(`{"resourceName": "a", "deviceType": "accelerator", "selectors": ` + c.selectors + `}`)
		pools, err := poolsOf(functions.Example().FS(), config(t, list), "intel.com")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, ids(pools[0])); diff != "" {
			t.Errorf("%s: %s", c.selectors, diff)
		}
	}
}

// A PF in switchdev mode has the netdevs of its VFs' representors beside its own, which need not come first.
func TestPFNameInSwitchdevMode(t *testing.T) {
	t.Attr("parity", "sriov/sel-pfNames")
	s := functions.New()
	s.PF(0x81, "ens1np0", 1, nil)
	for name, port := range map[string]string{"ens1np0": "p0", "eth0": "pf0vf0"} {
		s.Netdev("0000:81:00.0", name, "1")
		s.Write(functions.Dir("0000:81:00.0")+"/net/"+name+"/phys_switch_id", "c2cfc60003a1420c")
		s.Write(functions.Dir("0000:81:00.0")+"/net/"+name+"/phys_port_name", port)
	}
	pools, err := poolsOf(s.FS(),
		config(t, resources(`{"resourceName": "a", "selectors": {"pfNames": ["ens1np0"]}}`)), "intel.com")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"0000:81:00.1"}, ids(pools[0])); diff != "" {
		t.Error(diff)
	}
}

// In exclusive mode the RDMA device of a VF in a container is not visible on the node. The VF stays in its
// pool.
func TestRDMADeviceInContainer(t *testing.T) {
	t.Attr("parity", "sriov/sel-isRdma")
	t.Attr("parity", "sriov/restart-with-vfs-in-pods")
	s := functions.New()
	s.PF(0x81, "ens1", 1, nil)
	s.Function("0000:81:00.2", functions.Facts{"pf": "0000:81:00.0"})
	s.Symlink(functions.Dir("0000:81:00.0")+"/virtfn1", "../0000:81:00.2")
	s.Write(functions.Dir("0000:81:00.2")+"/mlx5_core.rdma.3/uevent", "")
	s.Function("0000:81:00.3", functions.Facts{"pf": "0000:81:00.0"})
	s.Symlink(functions.Dir("0000:81:00.0")+"/virtfn2", "../0000:81:00.3")
	s.Write(functions.Dir("0000:81:00.3")+"/mlx5_core.eth.3/uevent", "")
	pools, err := poolsOf(s.FS(), config(t,
		resources(`{"resourceName": "a", "selectors": {"isRdma": true, "linkTypes": ["ether"]}}`)), "intel.com")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"0000:81:00.1", "0000:81:00.2"}, ids(pools[0])); diff != "" {
		t.Error(diff)
	}
}

// Where the link of one VF is missing, the others keep their indexes.
func TestVFIndexWithGap(t *testing.T) {
	s := functions.New()
	s.PF(0x81, "ens1", 4, nil)
	delete(s, functions.Dir("0000:81:00.0")+"/virtfn1")
	pools, err := poolsOf(s.FS(),
		config(t, resources(`{"resourceName": "a", "selectors": {"pfNames": ["ens1#0-2"]}}`)), "intel.com")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"0000:81:00.1", "0000:81:00.3"}, ids(pools[0])); diff != "" {
		t.Error(diff)
	}
}
