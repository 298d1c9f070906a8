package topology_test

import (
	"io/fs"
	"path"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

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
	if diff := cmp.Diff(addresses("0000:00:01.0", "0000:80:01.0", "0000:81:00.0"),
		tr.AppendSharedBridges(addresses("0000:00:01.0"), d.Address)); diff != "" {
		t.Errorf("shared bridges appended (-want +got):\n%s", diff)
	}
	if wide, _ := tr.Device(address("10000:00:1f.7")); wide.RootComplex() != "pci10000:00" ||
		len(wide.Bridges()) != 0 {
		t.Errorf("10000:00:1f.7 is on %s below %v", wide.RootComplex(), wide.Bridges())
	}
	if _, ok := tr.Device(address("0000:00:1f.7")); ok {
		t.Error("the domain of 10000:00:1f.7 is dropped")
	}
}
