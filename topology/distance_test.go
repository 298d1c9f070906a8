// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"slices"
	"testing"
	"testing/fstest"

	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// near expects two functions of a machine to be this far apart.
type near struct {
	a, b    string
	level   topology.Level
	bridges int
}

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		about string
		sys   fstest.MapFS
		want  []near
	}{
		{
			// 01.0 ─ 81 switch ┬ 82:00 ─ 83 GPU
			//                  └ 82:01 ─ 84 NIC
			about: "one switch",
			sys: sysfs("0-1",
				"pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:00.0/0000:83:00.0 "+gpu+" 0",
				"pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:01.0/0000:84:00.0 "+nic+" 0"),
			want: []near{{"0000:83:00.0", "0000:84:00.0", topology.PIX, 1}},
		},
		{
			// 01.0 ─ 81 switch ┬ 82:00 ─ 83 ─ 84 ─ 85 GPU, 83 and 84 on its own card
			//                  └ 82:01 ─ 86 NIC
			about: "bridges on the card",
			sys: sysfs("0-1",
				"pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:00.0/0000:83:00.0/0000:84:00.0/0000:85:00.0 "+gpu+" 0",
				"pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:01.0/0000:86:00.0 "+nic+" 0"),
			want: []near{{"0000:85:00.0", "0000:86:00.0", topology.PIX, 1}},
		},
		{
			// 01.0 ─ 81 switch ┬ 82:00 ─ 83 switch ┬ 84:00 ─ 85 GPU
			//                  │                   └ 84:01 ─ 86 NVMe
			//                  ├ 82:01 ─ 87 NIC
			//                  └ 82:02 ─ 88 switch ┬ 89:00 ─ 8a GPU
			//                                      └ 89:01 ─ 8b NIC
			about: "cascaded switches",
			sys: sysfs("0-1",
				"pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:00.0/0000:83:00.0/0000:84:00.0/0000:85:00.0 "+gpu+" 0",
				"pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:00.0/0000:83:00.0/0000:84:01.0/0000:86:00.0 "+nvme+" 0",
				"pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:01.0/0000:87:00.0 "+nic+" 0",
				"pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:02.0/0000:88:00.0/0000:89:00.0/0000:8a:00.0 "+gpu+" 0",
				"pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:02.0/0000:88:00.0/0000:89:01.0/0000:8b:00.0 "+nic+" 0"),
			want: []near{
				{"0000:8a:00.0", "0000:8b:00.0", topology.PIX, 1},
				{"0000:85:00.0", "0000:87:00.0", topology.PXB, 3},
				{"0000:85:00.0", "0000:8b:00.0", topology.PXB, 5},
			},
		},
		{
			// pci0000:80 ┬ 01.0 ─ 81 GPU
			//            ├ 02.0 ─ 82 NIC
			//            └ 03.0 NIC on the root bus
			about: "one host bridge",
			sys: sysfs("0-1",
				"pci0000:80/0000:80:01.0/0000:81:00.0 "+gpu+" 0",
				"pci0000:80/0000:80:02.0/0000:82:00.0 "+nic+" 1",
				"pci0000:80/0000:80:03.0 "+nic+" -1"),
			want: []near{
				{"0000:81:00.0", "0000:82:00.0", topology.PHB, 0},
				{"0000:81:00.0", "0000:80:03.0", topology.PHB, 0},
			},
		},
		{
			// pci0000:80 ─ 01.0 ─ 81 switch ┬ GPU      pci0000:a0 ─ 01.0 ─ a1 NIC, same node
			//                               └ NVMe     pci0000:c0 ─ 01.0 ─ c1 NIC, other node
			//                                          pci0000:e0 ─ 01.0 ─ e1 NIC, node unknown
			about: "several host bridges",
			sys: sysfs("0-1",
				"pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:00.0/0000:83:00.0 "+gpu+" 0",
				"pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:01.0/0000:84:00.0 "+nvme+" 0",
				"pci0000:a0/0000:a0:01.0/0000:a1:00.0 "+nic+" 0",
				"pci0000:c0/0000:c0:01.0/0000:c1:00.0 "+nic+" 1",
				"pci0000:e0/0000:e0:01.0/0000:e1:00.0 "+nic+" -1"),
			want: []near{
				{"0000:83:00.0", "0000:a1:00.0", topology.NODE, 2},
				{"0000:83:00.0", "0000:c1:00.0", topology.SYS, 2},
				{"0000:83:00.0", "0000:e1:00.0", topology.UNK, 2},
				{"0000:e1:00.0", "0000:e1:00.0", topology.PIX, 0},
			},
		},
		{
			about: "no NUMA: one node, whatever numa_node says",
			sys: sysfs("",
				"pci0000:80/0000:80:01.0/0000:81:00.0 "+gpu+" -1",
				"pci0000:a0/0000:a0:01.0/0000:a1:00.0 "+nic+" -"),
			want: []near{{"0000:81:00.0", "0000:a1:00.0", topology.NODE, 0}},
		},
		{
			// two domains with the same bus numbers, one of them of five digits
			about: "domains",
			sys: sysfs("0-1",
				"pci0000:80/0000:80:01.0/0000:81:00.0 "+gpu+" 0",
				"pci10000:80/10000:80:01.0/10000:81:00.0 "+nic+" 0"),
			want: []near{
				{"0000:81:00.0", "10000:81:00.0", topology.NODE, 0},
				{"10000:80:01.0", "10000:81:00.0", topology.PHB, 0},
			},
		},
		{
			// pci0000:64 ┬ 05.5 VMD ─ pci10000:e0 ┬ 02.0 ─ e1 NVMe
			//            │                        └ 03.0 ─ e2 NVMe
			//            └ 01.0 ─ 65 GPU
			about: "VMD: a root complex inside another",
			sys: sysfs("0-1",
				"pci0000:64/0000:64:05.5/pci10000:e0/10000:e0:02.0/10000:e1:00.0 "+nvme+" 0",
				"pci0000:64/0000:64:05.5/pci10000:e0/10000:e0:03.0/10000:e2:00.0 "+nvme+" 0",
				"pci0000:64/0000:64:01.0/0000:65:00.0 "+gpu+" 0"),
			want: []near{
				{"10000:e1:00.0", "10000:e2:00.0", topology.PHB, 0},
				{"10000:e1:00.0", "0000:65:00.0", topology.NODE, 0},
			},
		},
		{
			// 01.0 ─ 81:00.0 and 81:00.1, one card with two ports; 02.0 ─ 82 GPU
			about: "functions of one card",
			sys: sysfs("0-1",
				"pci0000:80/0000:80:01.0/0000:81:00.0 "+nic+" 0",
				"pci0000:80/0000:80:01.0/0000:81:00.1 "+nic+" 0",
				"pci0000:80/0000:80:02.0/0000:82:00.0 "+gpu+" 0"),
			want: []near{
				{"0000:81:00.0", "0000:81:00.1", topology.PIX, 0},
				{"0000:81:00.1", "0000:82:00.0", topology.PHB, 0},
			},
		},
		{
			about: "functions that are not there",
			sys:   sysfs("0-1", "pci0000:80/0000:80:01.0/0000:81:00.0 "+gpu+" 0"),
			want: []near{
				{"0000:81:00.0", "0000:99:00.0", topology.UNK, 0},
				{"0000:99:00.0", "0000:99:00.0", topology.UNK, 0},
			},
		},
	} {
		t.Run(test.about, func(t *testing.T) {
			t.Parallel()
			check(t, tree(t, test.sys), test.want)
		})
	}
}

func check(t *testing.T, tr *topology.Tree, wants []near) {
	t.Helper()
	for _, w := range wants {
		want := topology.Distance{Level: w.level, Bridges: w.bridges}
		for _, pair := range [][2]string{{w.a, w.b}, {w.b, w.a}} {
			if got := tr.Distance(address(pair[0]), address(pair[1])); got != want {
				t.Errorf("Distance(%s, %s) = %v, want %v", pair[0], pair[1], got, want)
			}
		}
	}
}

// TestDistanceOfVFs: a VF is where its PF is, also where its number is on the bus of another device.
//
//	01.0 ─ 81 switch ┬ 82:00 ─ 83:00.0 PF, VFs 83:00.1 and 84:00.0
//	                 └ 82:01 ─ 85 GPU
//	02.0 ─ 86 GPU
func TestDistanceOfVFs(t *testing.T) {
	t.Attr("parity", "pair/switch-id-vf")
	t.Parallel()
	const port = "pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:00.0/"
	sys := sysfs("0-1",
		port+"0000:83:00.0 "+nic+" 0",
		port+"0000:83:00.1 "+nic+" 0",
		port+"0000:84:00.0 "+nic+" 0",
		"pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:01.0/0000:85:00.0 "+gpu+" 0",
		"pci0000:80/0000:80:02.0/0000:86:00.0 "+gpu+" 0")
	virtual(sys, port+"0000:83:00.0", port+"0000:83:00.1", "virtfn0")
	virtual(sys, port+"0000:83:00.0", port+"0000:84:00.0", "virtfn1")
	check(t, tree(t, sys), []near{
		{"0000:83:00.0", "0000:85:00.0", topology.PIX, 1},
		{"0000:83:00.1", "0000:85:00.0", topology.PIX, 1},
		{"0000:84:00.0", "0000:85:00.0", topology.PIX, 1},
		{"0000:84:00.0", "0000:83:00.1", topology.PIX, 0},
		{"0000:84:00.0", "0000:86:00.0", topology.PHB, 2},
	})
}

// TestDistanceOfVFWithoutPF: a VF in a virtual machine has physfn pointing nowhere, or none; it is where it
// is.
func TestDistanceOfVFWithoutPF(t *testing.T) {
	t.Parallel()
	sys := sysfs("0-1",
		"pci0000:80/0000:80:01.0/0000:83:00.1 "+nic+" 0",
		"pci0000:80/0000:80:02.0/0000:86:00.0 "+gpu+" 0")
	link(sys, "devices/pci0000:80/0000:80:01.0/0000:83:00.1/physfn", "../0000:83:00.0")
	check(t, tree(t, sys), []near{{"0000:83:00.1", "0000:86:00.0", topology.PHB, 0}})
}

func TestCompare(t *testing.T) {
	t.Parallel()
	ascending := []topology.Distance{
		{Level: topology.PIX}, {Level: topology.PIX, Bridges: 1}, {Level: topology.PXB}, {Level: topology.PHB},
		{Level: topology.NODE}, {Level: topology.SYS, Bridges: 9}, {Level: topology.UNK},
	}
	if !slices.IsSortedFunc(ascending, topology.Distance.Compare) {
		t.Error("Compare does not follow the ladder")
	}
	for _, d := range ascending {
		if got, want := d.Level.Direct(), d.Level <= topology.PXB; got != want {
			t.Errorf("%v.Direct() = %v", d.Level, got)
		}
	}
}

func TestLevelText(t *testing.T) {
	t.Parallel()
	for level := range topology.Level(topology.Levels) {
		text, err := level.MarshalText()
		var back topology.Level
		if err != nil || back.UnmarshalText(text) != nil || back != level {
			t.Errorf("%v is written as %q, %v and read as %v", level, text, err, back)
		}
	}
	var later topology.Level
	if err := later.UnmarshalText([]byte("CXL")); err != nil || later != topology.UNK {
		t.Errorf("a level of a later version is read as %v, %v", later, err)
	}
	if got := topology.Level(-1).String(); got != "Level(-1)" {
		t.Errorf("Level(-1) is written as %s", got)
	}
}

func BenchmarkDistance(b *testing.B) {
	tr := tree(b, machines.Sys(b, "nv-h100-aws-p5", 4))
	gpu, vf := address("0000:53:00.0"), address("0000:c9:00.4")
	for b.Loop() {
		_ = tr.Distance(gpu, vf)
	}
}

func BenchmarkRead(b *testing.B) {
	for _, name := range []string{"oci-mi300x-derived", "nv-h100-aws-p5", "amd-mi300x-smc-thor2-cpx-derived"} {
		b.Run(name, func(b *testing.B) {
			sys := machines.Sys(b, name, 8)
			for b.Loop() {
				_ = tree(b, sys)
			}
		})
	}
}
