// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/functions"
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
