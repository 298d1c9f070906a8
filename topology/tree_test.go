// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// Classes in the trees below.
const (
	bridge = "0x060400"
	nic    = "0x020000"
	gpu    = "0x120000"
	nvme   = "0x010802"
)

// sysfs makes a machine. The first argument is the list of NUMA nodes, "" for none. Each other one is a
// function: its place below devices, its class and its NUMA node, "-" for no file. Bridges on the way need no
// line of their own.
func sysfs(nodes string, functions ...string) fstest.MapFS {
	sys := fstest.MapFS{}
	if nodes != "" {
		file(sys, "devices/system/node/online", nodes)
	}
	for _, function := range functions {
		fields := strings.Fields(function)
		place, class, numa := fields[0], fields[1], fields[2]
		for above := path.Dir(place); strings.Contains(path.Base(above), "."); above = path.Dir(above) {
			if _, ok := sys["bus/pci/devices/"+path.Base(above)]; !ok {
				add(sys, above, bridge, numa)
			}
		}
		add(sys, place, class, numa)
	}
	return sys
}

func add(sys fstest.MapFS, place, class, numa string) {
	link(sys, "bus/pci/devices/"+path.Base(place), "../../../devices/"+place)
	file(sys, "devices/"+place+"/class", class)
	if numa != "-" {
		file(sys, "devices/"+place+"/numa_node", numa)
	}
}

func file(sys fstest.MapFS, name, content string) {
	sys[name] = &fstest.MapFile{Data: []byte(content + "\n"), Mode: 0o444}
}

func link(sys fstest.MapFS, name, target string) {
	sys[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink}
}

// TestSwitch: a switch has the name of its upstream port, for all that hang on it and for nothing else.
func TestSwitch(t *testing.T) {
	t.Parallel()
	const port = "pci0000:80/0000:80:01.0"
	const inner = port + "/0000:81:00.0/0000:82:00.0/0000:83:00.0"
	for about, c := range map[string]struct {
		functions []string
		want      map[string]string
	}{
		"a switch": {
			[]string{port + "/0000:81:00.0/0000:82:00.0/0000:83:00.0 " + gpu + " 0",
				port + "/0000:81:00.0/0000:82:01.0/0000:84:00.0 " + nic + " 0"},
			map[string]string{"0000:83:00.0": "0000:81:00.0", "0000:84:00.0": "0000:81:00.0"},
		},
		"an endpoint of the switch itself beside its upstream port": {
			[]string{port + "/0000:81:00.0/0000:82:00.0/0000:83:00.0 " + gpu + " 0",
				port + "/0000:81:00.1 " + nvme + " 0", port + "/0000:81:00.0/0000:82:01.0/0000:84:00.0 " + nic + " 0"},
			map[string]string{"0000:83:00.0": "0000:81:00.0", "0000:84:00.0": "0000:81:00.0"},
		},
		"cascaded switches, which are PXB to each other": {
			[]string{
				inner + "/0000:84:00.0/0000:85:00.0 " + gpu + " 0", inner + "/0000:84:01.0/0000:86:00.0 " + nic + " 0",
				port + "/0000:81:00.0/0000:82:01.0/0000:87:00.0 " + nic + " 0"},
			map[string]string{"0000:85:00.0": "0000:81:00.0", "0000:86:00.0": "0000:81:00.0",
				"0000:87:00.0": "0000:81:00.0"},
		},
		"no switch": {
			[]string{port + "/0000:81:00.0 " + gpu + " 0", "pci0000:80/0000:80:02.0/0000:82:00.0 " + nic + " 0"},
			map[string]string{"0000:81:00.0": "pci0000:80", "0000:82:00.0": "pci0000:80"},
		},
		"a bridge with slots, as in guests": {
			[]string{port + "/0000:81:01.0 " + gpu + " 0", port + "/0000:81:02.0 " + nic + " 0"},
			map[string]string{"0000:81:01.0": "0000:80:01.0", "0000:81:02.0": "0000:80:01.0"},
		},
		"two switches below such a bridge": {
			[]string{
				port + "/0000:81:01.0/0000:82:00.0 " + gpu + " 0", port + "/0000:81:01.0/0000:82:01.0 " + nic + " 0",
				port + "/0000:81:02.0/0000:83:00.0 " + gpu + " 0", port + "/0000:81:02.0/0000:83:01.0 " + nic + " 0"},
			map[string]string{"0000:82:00.0": "0000:80:01.0", "0000:83:01.0": "0000:80:01.0"},
		},
	} {
		tree, err := topology.Read(sysfs("0-1", c.functions...))
		if err != nil {
			t.Fatal(err)
		}
		for device, want := range c.want {
			a, err := topology.ParseAddress(device)
			if err != nil {
				t.Fatal(err)
			}
			if got := tree.Switch(a); got != want {
				t.Errorf("%s: %s hangs on %s, want %s", about, device, got, want)
			}
		}
	}
}

// TestSwitchOfEveryMachine: devices have the same switch exactly where they are PIX or PXB to each other; in
// a C2C complex GPU and NIC.
func TestSwitchOfEveryMachine(t *testing.T) {
	t.Parallel()
	for _, name := range machines.Names() {
		tree, err := machines.Tree(name, 1)
		if err != nil {
			t.Fatal(err)
		}
		cards := slices.DeleteFunc(slices.Collect(tree.Devices()), func(d *topology.Device) bool {
			return !d.Class.IsGPU() && !d.Class.IsNetwork()
		})
		for _, a := range cards {
			on := tree.Switch(a.Address)
			for _, b := range cards {
				if a.Function().Slot() == b.Function().Slot() ||
					strings.HasPrefix(on, "c2c") && a.Class.IsGPU() == b.Class.IsGPU() {
					continue
				}
				same := topology.IsSwitch(on) && on == tree.Switch(b.Address)
				if near := tree.Distance(a.Address, b.Address).Level.Direct(); same != near {
					t.Errorf("%s: %s on %s and %s on %s: same switch %t", name, a.Address, on, b.Address,
						tree.Switch(b.Address), near)
				}
			}
		}
	}
}

// virtual makes one function the VF of another.
func virtual(sys fstest.MapFS, pf, vf, virtfn string) {
	link(sys, "devices/"+pf+"/"+virtfn, "../"+path.Base(vf))
	link(sys, "devices/"+vf+"/physfn", "../"+path.Base(pf))
}

func tree(t testing.TB, sys fs.FS) *topology.Tree {
	t.Helper()
	tree, err := topology.Read(sys)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func address(s string) topology.Address {
	a, err := topology.ParseAddress(s)
	if err != nil {
		panic(err)
	}
	return a
}

func addresses(list ...string) []topology.Address {
	var parsed []topology.Address
	for _, s := range list {
		parsed = append(parsed, address(s))
	}
	return parsed
}

func TestTree(t *testing.T) {
	t.Parallel()
	tr := tree(t, sysfs("0,8",
		"pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:00.0/0000:83:00.0 "+gpu+" 8",
		"pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:01.0/0000:84:00.0 "+nic+" 8",
		"pci10000:00/10000:00:1f.7 "+nic+" -1",
	))
	var all []string
	for d := range tr.Devices() {
		all = append(all, d.Address.String())
	}
	want := []string{
		"0000:80:01.0", "0000:81:00.0", "0000:82:00.0", "0000:82:01.0", "0000:83:00.0", "0000:84:00.0",
		"10000:00:1f.7",
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{0, 8}, tr.NUMANodes()); diff != "" {
		t.Errorf("NUMA nodes (-want +got):\n%s", diff)
	}
	d, ok := tr.Device(address("0000:84:00.0"))
	if !ok {
		t.Fatal("no 0000:84:00.0")
	}
	if d.RootComplex() != "pci0000:80" || d.NUMA != topology.Node(8) {
		t.Errorf("0000:84:00.0 is on %s, node %v", d.RootComplex(), d.NUMA)
	}
	if diff := cmp.Diff(addresses("0000:80:01.0", "0000:81:00.0", "0000:82:01.0"), d.Bridges()); diff != "" {
		t.Errorf("bridges (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(addresses("0000:80:01.0", "0000:81:00.0"), tr.SharedBridges(d.Address)); diff != "" {
		t.Errorf("shared bridges (-want +got):\n%s", diff)
	}
	if wide, _ := tr.Device(address("10000:00:1f.7")); wide.RootComplex() != "pci10000:00" ||
		len(wide.Bridges()) != 0 {
		t.Errorf("10000:00:1f.7 is on %s below %v", wide.RootComplex(), wide.Bridges())
	}
	if _, ok := tr.Device(address("0000:00:1f.7")); ok {
		t.Error("the domain of 10000:00:1f.7 is dropped")
	}
}
