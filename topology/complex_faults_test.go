// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/topology"
)

// TestDMAFunctionOnGrace: a DMA function without a GPU costs its own complex alone.
func TestDMAFunctionOnGrace(t *testing.T) {
	t.Parallel()
	sys := graceMachine()
	add(sys, "pci0010:00/0010:00:01.0/0010:02:00.0", "0x020700", "1")
	ids(sys, "15b3:2100 0010:02:00.0")
	if got := levels(tree(t, sys), "0008:01:00.0", "0000:01:00.0"); got != "C2C" {
		t.Error(got)
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

// TestOwnPlaceOfNIC: a NIC keeps its own place if a GPU is nearer there than at its DMA function. The GPU of
// the function shares a further switch with an NVMe disk.
func TestOwnPlaceOfNIC(t *testing.T) {
	t.Parallel()
	const outer = "pci0008:00/0008:00:00.0/0008:01:00.0/"
	const dma, there, gpu, pf = "0008:03:00.0", "0008:06:00.0", "0008:0c:00.0", "0008:0d:00.0"
	for _, c := range []struct{ name, own, levels, at string }{
		{"below the same outer switch", outer + "0008:02:02.0/0008:09:00.0/", "PXB PIX", "0008:01:00.0"},
		{"elsewhere", "pci0010:00/0010:00:00.0/0010:01:00.0/", "NODE PIX", "0010:01:00.0"},
	} {
		sys := sysfs("0-1", outer+"0008:02:00.0/"+dma+" 0x020700 0",
			outer+"0008:02:01.0/0008:04:00.0/0008:05:01.0/"+there+" "+display+" 0",
			outer+"0008:02:01.0/0008:04:00.0/0008:05:02.0/0008:07:00.0 0x010802 0",
			c.own+"0008:0a:01.0/"+gpu+" "+display+" 0", c.own+"0008:0a:02.0/"+pf+" "+nic+" 0")
		ids(sys, "15b3:2100 "+dma, "10de:2941 "+there+" "+gpu, "15b3:1023 "+pf)
		setVPD(sys, dma, "V3=a")
		setVPD(sys, pf, "V3=a")
		read := tree(t, sys)
		if got := levels(read, there, pf) + " " + levels(read, gpu, pf); got != c.levels {
			t.Errorf("%s: %s, want %s", c.name, got, c.levels)
		}
		if got := read.Switch(address(pf)); got != c.at {
			t.Errorf("%s: switch %s", c.name, got)
		}
		if all := read.Complexes(); !strings.Contains(all[0].Fault, "nearer") || len(all[0].NICs) != 0 {
			t.Errorf("%s: complexes %+v", c.name, all)
		}
	}
}

// TestTranslatedPairs: a NIC without ATS redirects its own pairs alone, and a GPU hides no redirect.
func TestTranslatedPairs(t *testing.T) {
	t.Parallel()
	sys := inlineMachine()
	const without, with, gpu = "0000:8b:00.0", "0000:83:00.0", "0000:86:00.0"
	maps.Copy(sys, sysfs("", "pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:03.0/"+without+" "+nic+" 0"))
	setPort(sys, "0000:82:00.0", 0x5d, false)
	setPort(sys, with, 0, true)
	setPort(sys, "0000:82:03.0", 0x5d, false)
	setPort(sys, "0000:82:01.0", 0x1d, false)
	for _, id := range []string{"15b3:1023", "8086:1563"} { // no NIC of the complex either
		ids(sys, id+" "+without)
		read := tree(t, sys)
		redirects := func(nic string) bool {
			return slices.ContainsFunc(read.Ports(address(gpu), address(nic)), func(p topology.Port) bool {
				return p.Redirects
			})
		}
		if redirects(with) || !redirects(without) {
			t.Errorf("%s: redirect with ATS %t, without %t", id, redirects(with), redirects(without))
		}
		got := []int{}
		for _, a := range []string{with, without, gpu} {
			got = append(got, read.Redirected(address(a)))
		}
		if !slices.Equal(got, []int{0, 2, 2}) {
			t.Errorf("%s: bridges above a redirect %v", id, got)
		}
	}
}

// TestPCIeBesideC2C: C2C is between a GPU and a NIC; other pairs on Grace have the distance of PCI Express.
func TestPCIeBesideC2C(t *testing.T) {
	t.Parallel()
	sys := graceMachine()
	const up = "pci0002:00/0002:00:00.0/0002:01:00.0/"
	maps.Copy(sys, sysfs("", up+"0002:02:00.0/0002:03:00.0 "+nic+" 0", up+"0002:02:01.0/0002:04:00.0 "+nic+" 0",
		up+"0002:02:02.0/0002:05:00.0 "+nic+" 0", "pci0008:00/0008:00:01.0/0008:03:00.0 "+nic+" 0"))
	ids(sys, "15b3:1023 0002:03:00.0 0002:04:00.0", "8086:1563 0002:05:00.0 0008:03:00.0")
	read := tree(t, sys)
	got := levels(read, "0008:01:00.0", "0002:03:00.0", "0002:05:00.0", "0008:03:00.0")
	if got != "C2C NODE PHB" {
		t.Errorf("a GPU: %s", got)
	}
	got = levels(read, "0002:03:00.0", "0002:04:00.0", "0002:05:00.0", "0000:01:00.0")
	if got != "PIX PIX NODE" {
		t.Errorf("a NIC: %s", got)
	}
}

// TestMayBeNearer: what depends on unread Vital Product Data is said, and nothing else.
func TestMayBeNearer(t *testing.T) {
	t.Parallel()
	const gpu, other = "0008:06:00.0", "0009:06:00.0"
	for name, c := range map[string]struct {
		unread []string
		want   string // first GPU to the PFs of both NICs, then second GPU
	}{
		"all read":     {nil, "---- ----"},
		"a function":   {[]string{"0008:03:00.0"}, "??-- ----"},
		"a PF":         {[]string{"0000:03:00.0"}, "?--- ----"},
		"a NIC":        {[]string{"0000:03:00.0", "0000:03:00.1"}, "??-- ----"},
		"two of a GPU": {[]string{"0008:03:00.0", "0000:03:00.0", "0000:03:00.1", "0002:03:00.0"}, "???- --?-"},
	} {
		sys := dmaMachine()
		for _, a := range c.unread {
			delete(sys, placeOf(sys, a)+"/vpd")
		}
		read, got := tree(t, sys), ""
		for _, a := range []string{gpu, other} {
			for _, nic := range []string{"0000:03:00.0", "0000:03:00.1", "0002:03:00.0", "0002:03:00.1"} {
				if read.MayBeNearer(address(a), address(nic)) {
					got += "?"
				} else {
					got += "-"
				}
			}
			got += " "
		}
		if got = strings.TrimSpace(got); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestMayBeNearerBesideInline: a complex without a DMA function leaves nothing unread.
func TestMayBeNearerBesideInline(t *testing.T) {
	t.Parallel()
	sys := dmaMachine()
	maps.Copy(sys, inlineMachine())
	setVPD(sys, "0000:c1:00.0", "V3=c")
	if tree(t, sys).MayBeNearer(address("0000:86:00.0"), address("0000:c1:00.0")) {
		t.Error("a NIC that belongs to no DMA function may be nearer to a GPU without one")
	}
}

// TestMovedIsKnown: after a topology file has placed the NICs, unread Vital Product Data decides nothing, and
// a NIC that stays where it is stays in its complex.
func TestMovedIsKnown(t *testing.T) {
	t.Parallel()
	const function, gpu, other = "0008:03:00.0", "0008:06:00.0", "0009:06:00.0"
	nics := []string{"0000:03:00.0", "0000:03:00.1", "0002:03:00.0", "0002:03:00.1"}
	for _, c := range []struct {
		name   string
		unread []string
		own    bool // the NICs' own places, not those in the tree
		faults int
	}{
		{"all read, nothing moves", nil, false, 0}, {"all read, own places", nil, true, 2},
		{"a function", []string{function}, true, 2}, {"a function and NICs", append(nics[:3:3], function), true, 2},
	} {
		sys := dmaMachine()
		for _, a := range c.unread {
			delete(sys, placeOf(sys, a)+"/vpd")
		}
		read, places := tree(t, sys), map[topology.Address]topology.Place{}
		for _, nic := range nics {
			d, _ := read.Device(address(nic))
			place, _ := read.Place(d.Address)
			if c.own {
				place = topology.Place{RootComplex: d.RootComplex(), Bridges: d.Bridges(), NUMA: d.NUMA}
			}
			places[d.Address] = place
		}
		moved, faults := read.Move(places), 0
		for _, nic := range nics {
			if moved.MayBeNearer(address(gpu), address(nic)) || moved.MayBeNearer(address(other), address(nic)) {
				t.Errorf("%s: %s may be nearer than at its given place", c.name, nic)
			}
		}
		for _, found := range moved.Complexes() {
			if found.Unread || found.Kind != topology.KindDMA {
				t.Errorf("%s: %+v", c.name, found)
			}
			if found.Fault != "" {
				faults++
			}
		}
		if faults != c.faults {
			t.Errorf("%s: %d faults in %+v", c.name, faults, moved.Complexes())
		}
	}
}
