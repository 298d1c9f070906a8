// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// poolsOf finds the pools of a machine.
func poolsOf(sys fs.FS, c *Config, prefix string) ([]Pool, error) {
	pools, _, err := Finder{Sys: sys, Prefix: prefix}.Find(c)
	return pools, err
}

func TestNodeNeedsNetdev(t *testing.T) {
	t.Attr("parity", "sriov/excluded-devices")
	s := functions.Example()
	s.Function("0000:89:00.0", functions.Facts{"driver": "virtio-pci"})
	s.Symlink("class/net/eth0", "../../"+functions.Dir("0000:89:00.0")+"/virtio0/net/eth0")
	s.Function("0000:89:00.1", functions.Facts{"driver": "virtio-pci"})
	s.Symlink("class/net/bond0", "../../devices/virtual/net/bond0")
	f := Finder{
		Sys:    s.FS(),
		Prefix: "intel.com",
		Routes: func() (Routes, error) {
			return Routes{Main: []string{"ens5", "ens1v0", "eth0", "bond0", "gone"}}, nil
		},
	}
	pools, _, err := f.Find(config(t,
		resources(`{"resourceName": "a", "selectors": {"drivers": ["e1000e", "mlx5_core", "virtio-pci"]}}`)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"0000:81:00.2", "0000:81:00.3", "0000:81:00.4", "0000:83:00.1", "0000:84:00.0",
		"0000:89:00.1"}, ids(pools[0])); diff != "" {
		t.Error(diff)
	}
}

// TestVirtioPF: the VFs of a DPU bound to virtio-pci are found by the netdev of their PF, whichever folder
// below the function has it, and by the address of the PF.
func TestVirtioPF(t *testing.T) {
	for _, c := range []struct{ folder, selector string }{
		{"", `"pfNames": ["uplink0#1-3"]`},
		{"virtio3/", `"pfNames": ["uplink0#1-3"]`},
		{"virtio3/", `"rootDevices": ["0000:81:00.0#1-3"]`},
	} {
		s := functions.New()
		s.PF(0x81, "uplink0", 4, functions.Facts{
			"netdev": "", "driver": "virtio-pci", "vendor": "0x1af4", "device": "0x1041",
		})
		netdev := functions.Dir("0000:81:00.0") + "/" + c.folder + "net/uplink0"
		s.Write(netdev+"/type", "1")
		s.Symlink("class/net/uplink0", "../../"+netdev)
		pools := discover(t, s.FS(), resources(`{"resourceName": "a", "selectors": {`+c.selector+`}}`))
		if diff := cmp.Diff([]string{"0000:81:00.2", "0000:81:00.3", "0000:81:00.4"}, ids(pools[0])); diff != "" {
			t.Errorf("%s, netdev below %q: %s", c.selector, c.folder, diff)
		}
	}
}

func TestFindErrors(t *testing.T) {
	for _, c := range []struct{ list, prefix, want string }{
		{resources(`{"resourceName": "a"}`, `{"resourceName": "b"}`,
			`{"resourceName": "a", "resourcePrefix": "intel.com"}`), "intel.com",
			`read configuration config.json: resource "a": resourceName is there twice, once with resourcePrefix intel.com`},
		{resources(`{"resourceName": "a"}`), "Intel.com",
			`read configuration config.json: resource "a": resourcePrefix "Intel.com" is not a lower-case domain name such as intel.com`},
		{resources(`{"resourceName": "a"}`), "intel.com/x",
			`read configuration config.json: resource "a": resourcePrefix "intel.com/x" is not a lower-case domain name such as intel.com`},
	} {
		if _, err := poolsOf(functions.New().FS(), config(t, c.list), c.prefix); err == nil ||
			err.Error() != c.want {
			t.Errorf("error %v; want %s", err, c.want)
		}
	}
}

func TestUnreadableMachine(t *testing.T) {
	s := functions.Example()
	s.Write(functions.Dir("0000:85:00.0")+"/vendor", "Intel")
	const want = `read vendor of 0000:85:00.0: parse "Intel": invalid syntax`
	if _, err := poolsOf(s.FS(), config(t, resources(`{"resourceName": "a"}`)), "intel.com"); err == nil ||
		err.Error() != want {
		t.Errorf("error %v; want %s", err, want)
	}
}

func TestMissingPF(t *testing.T) {
	f := Finder{Sys: functions.Example().FS(), Prefix: "intel.com"}
	_, warnings, err := f.Find(config(t, resources(
		`{"resourceName": "a", "selectors": {"pfNames": ["ens1#0", "ens9#0-3"], "rootDevices": ["0000:99:00.0"]}}`,
		`{"resourceName": "b", "deviceType": "auxNetDevice", "selectors": {"pfNames": ["ens9"], "auxTypes": ["sf"]}}`,
	)))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`resource "a": selectors: pfNames: no VF with a driver belongs to the PF "ens9"`,
		`resource "a": selectors: rootDevices: no VF with a driver belongs to the PF "0000:99:00.0"`,
		`resource "b": selectors: pfNames: no sub-function belongs to the PF "ens9"`,
	}
	if diff := cmp.Diff(want, warnings); diff != "" {
		t.Error(diff)
	}
}

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
