// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tandem-k8s/tandem/topology"
)

// TestMoreOnGrace: functions beside those of a C2C machine take C2C from nobody.
func TestMoreOnGrace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, at, class, id, numa, nic string }{
		{"a VF in a guest, without its PF", "pci0101:00/0101:00:00.0", nic, "15b3:101e 0101:00:00.0", "0",
			"0101:00:00.0"},
		{"a DMA function without a GPU costs its own complex alone", "pci0010:00/0010:00:01.0/0010:02:00.0",
			"0x020700", "15b3:2100 0010:02:00.0", "1", "0000:01:00.0"},
	} {
		sys := graceMachine()
		add(sys, c.at, c.class, c.numa)
		ids(sys, c.id)
		if got := levels(tree(t, sys), "0008:01:00.0", c.nic); got != "C2C" {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}

// TestFaultOfDamagedVPD: root has read a damaged file, and learns so.
func TestFaultOfDamagedVPD(t *testing.T) {
	t.Parallel()
	sys := dmaMachine()
	setVPD(sys, "0008:03:00.0", "SN=1")
	all := tree(t, sys).Complexes()
	if i := slices.IndexFunc(all, func(c topology.Complex) bool { return c.Fault != "" }); i < 0 ||
		strings.Contains(all[i].Fault, "root reads the file") {
		t.Errorf("file without V3: %v", all)
	}
}

// TestUnreadableVPDOfNICs: the fault blames the NICs' files, not the NICs.
func TestUnreadableVPDOfNICs(t *testing.T) {
	t.Parallel()
	sys := dmaMachine()
	for _, at := range []string{"0000:03:00.0", "0000:03:00.1"} {
		delete(sys, placeOf(sys, at)+"/vpd")
	}
	for _, c := range tree(t, sys).Complexes() {
		if c.Fault != "" && !strings.Contains(c.Fault, "vpd") {
			t.Errorf("NICs without vpd: %s", c.Fault)
		}
	}
}

// TestDMABelowOuterSwitch: complexes below one outer switch have a GPU each.
func TestDMABelowOuterSwitch(t *testing.T) {
	t.Parallel()
	sys := sysfs("0-1")
	const outer = "pci0008:00/0008:00:00.0/0008:01:00.0/"
	for _, n := range []string{"1", "2"} {
		up := outer + "0008:02:0" + n + ".0/0008:" + n + "0:00.0/"
		fn, gpu := "0008:"+n+"3:00.0", "0008:"+n+"6:00.0"
		add(sys, up+"0008:"+n+"1:00.0/"+fn, "0x020700", "0")
		add(sys, up+"0008:"+n+"1:01.0/0008:"+n+"4:00.0/0008:"+n+"5:00.0/"+gpu, display, "0")
		pf := "000" + n + ":03:00.0"
		add(sys, "pci000"+n+":00/000"+n+":00:00.0/"+pf, nic, "0")
		ids(sys, "15b3:2100 "+fn, "10de:2941 "+gpu, "15b3:1023 "+pf)
		setVPD(sys, fn, "V3="+n)
		setVPD(sys, pf, "V3="+n)
	}
	for _, c := range tree(t, sys).Complexes() {
		if len(c.GPUs) != 1 {
			t.Errorf("complex of %s: GPUs %v", c.Function, c.GPUs)
		}
	}
	if got := levels(tree(t, sys), "0008:16:00.0", "0001:03:00.0", "0002:03:00.0"); got != "PIX PXB" {
		t.Errorf("levels %s", got)
	}
}

// TestHostileVPD: any bytes are read without a panic, and a value ends with its resource.
func TestHostileVPD(t *testing.T) {
	t.Parallel()
	for _, content := range [][]byte{
		nil, {0x90}, {0x90, 0xff, 0xff, 'V', '3', 1, 'a'},
		{0x90, 3, 0, 'V', '3', 1, 'a'}, {0x90, 1, 0, 'V', '3', 1, 'a'},
		{0x82, 0, 0, 0x82, 0, 0}, {0x90, 3, 0, 'V', '3', 0},
	} {
		sys := dmaMachine()
		sys[placeOf(sys, "0008:03:00.0")+"/vpd"] = &fstest.MapFile{Data: content}
		if got := levels(tree(t, sys), "0008:06:00.0", "0000:03:00.0"); got != "NODE" {
			t.Errorf("%v: %s", content, got)
		}
	}
}
