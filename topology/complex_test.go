// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tandem-k8s/tandem/topology"
)

const display = "0x030200"

// ids sets vendor and device of functions, "vendor:device address …".
func ids(sys fstest.MapFS, lines ...string) {
	for _, line := range lines {
		fields := strings.Fields(line)
		vendor, product, _ := strings.Cut(fields[0], ":")
		for _, at := range fields[1:] {
			target := placeOf(sys, at)
			file(sys, target+"/vendor", "0x"+vendor)
			file(sys, target+"/device", "0x"+product)
		}
	}
}

// placeOf returns the folder of a function.
func placeOf(sys fstest.MapFS, address string) string {
	link := sys["bus/pci/devices/"+address]
	if link == nil {
		panic("no function " + address)
	}
	return strings.TrimPrefix(string(link.Data), "../../../")
}

// vpd returns Vital Product Data with a name and keywords, "V3=…".
func vpd(keywords ...string) []byte {
	name := "ConnectX"
	content := append([]byte{0x82, byte(len(name)), 0}, name...)
	var fields []byte
	for _, keyword := range keywords {
		word, value, _ := strings.Cut(keyword, "=")
		fields = append(append(fields, word[0], word[1], byte(len(value))), value...)
	}
	content = binary.LittleEndian.AppendUint16(append(content, 0x90), uint16(len(fields)))
	return append(append(content, fields...), 0x78)
}

func setVPD(sys fstest.MapFS, address string, keywords ...string) {
	sys[placeOf(sys, address)+"/vpd"] = &fstest.MapFile{Data: vpd(keywords...), Mode: 0o400}
}

// setPort sets the ACS control register of a port, and ATS of any function.
func setPort(sys fstest.MapFS, address string, control uint16, ats bool) {
	config := make([]byte, 4096)
	binary.LittleEndian.PutUint32(config[0x100:], 0x148<<20|1<<16|0x000d)
	binary.LittleEndian.PutUint16(config[0x106:], control)
	if ats {
		binary.LittleEndian.PutUint32(config[0x148:], 1<<16|0x000f)
	}
	sys[placeOf(sys, address)+"/config"] = &fstest.MapFile{Data: config, Mode: 0o644}
}

// dmaMachine has two GPUs with a DMA function each, and two NICs with two PFs each on other root ports.
func dmaMachine() fstest.MapFS {
	var functions []string
	for _, domain := range []string{"0008", "0009"} {
		up := fmt.Sprintf("pci%[1]s:00/%[1]s:00:00.0/%[1]s:01:00.0/", domain)
		functions = append(functions, up+fmt.Sprintf("%[1]s:02:00.0/%[1]s:03:00.0 0x020700 0", domain),
			up+fmt.Sprintf("%[1]s:02:01.0/%[1]s:04:00.0/%[1]s:05:00.0/%[1]s:06:00.0 %[2]s 0", domain, display))
	}
	for _, domain := range []string{"0000", "0002"} {
		for f := range 2 {
			functions = append(functions, fmt.Sprintf("pci%[1]s:00/%[1]s:00:00.0/%[1]s:01:00.0/%[1]s:02:00.0/"+
				"%[1]s:03:00.%[2]d %[3]s 0", domain, f, nic))
		}
	}
	sys := sysfs("0-1", functions...)
	ids(sys, "10de:2941 0008:06:00.0 0009:06:00.0", "15b3:2100 0008:03:00.0 0009:03:00.0",
		"15b3:1023 0000:03:00.0 0000:03:00.1 0002:03:00.0 0002:03:00.1",
		"10de:22b1 0008:00:00.0 0009:00:00.0 0000:00:00.0 0002:00:00.0",
		"15b3:197c 0008:01:00.0 0008:02:00.0 0008:02:01.0 0008:04:00.0 0008:05:00.0")
	for function, uuid := range map[string]string{"0008:03:00.0": "a", "0009:03:00.0": "b"} {
		setVPD(sys, function, "VU=x", "V3="+uuid)
	}
	for f := range 2 {
		setVPD(sys, fmt.Sprint("0000:03:00.", f), "SN=1", "VA=V3\x02bV3", "V3=a")
		setVPD(sys, fmt.Sprint("0002:03:00.", f), "SN=2", "V3=b")
	}
	return sys
}

// levels returns the levels from a GPU to functions.
func levels(tree *topology.Tree, gpu string, to ...string) (all string) {
	for _, a := range to {
		all += tree.Distance(address(gpu), address(a)).Level.String() + " "
	}
	return strings.TrimSpace(all)
}

func TestDMAFunctionIsThePlaceOfItsNIC(t *testing.T) {
	t.Parallel()
	tree := tree(t, dmaMachine())
	nics := []string{"0000:03:00.0", "0000:03:00.1", "0002:03:00.0", "0002:03:00.1"}
	if got := levels(tree, "0008:06:00.0", nics...); got != "PIX PIX NODE NODE" {
		t.Errorf("first GPU: %s", got)
	}
	if got := levels(tree, "0009:06:00.0", nics...); got != "NODE NODE PIX PIX" {
		t.Errorf("second GPU: %s", got)
	}
	a, b := tree.Switch(address("0008:06:00.0")), tree.Switch(address(nics[1]))
	if a != b || a != "0008:01:00.0" {
		t.Errorf("switches %s and %s", a, b)
	}
	want := []topology.Complex{
		{Kind: topology.KindDMA, GPUs: addresses("0008:06:00.0"), NICs: addresses(nics[:2]...),
			Function: address("0008:03:00.0"), Switch: address("0008:01:00.0")},
		{Kind: topology.KindDMA, GPUs: addresses("0009:06:00.0"), NICs: addresses(nics[2:]...),
			Function: address("0009:03:00.0"), Switch: address("0009:01:00.0")},
	}
	if diff := cmp.Diff(want, tree.Complexes(), cmpopts.EquateComparable(topology.NUMANode{})); diff != "" {
		t.Error(diff)
	}
}

// TestMovedNIC: a given place counts, not that of the DMA function.
func TestMovedNIC(t *testing.T) {
	t.Parallel()
	read := tree(t, dmaMachine())
	place, _ := read.Place(address("0009:06:00.0"))
	moved := read.Move(map[topology.Address]topology.Place{address("0000:03:00.0"): place})
	if got := levels(moved, "0009:06:00.0", "0000:03:00.0"); got != "PIX" {
		t.Errorf("moved to the second GPU: %s", got)
	}
	if got := levels(moved, "0008:06:00.0", "0000:03:00.0", "0000:03:00.1"); got != "NODE PIX" {
		t.Errorf("first GPU: %s", got)
	}
}

// TestBrokenComplexes: a fault costs its own complex alone, and has a reason.
func TestBrokenComplexes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(fstest.MapFS)
		reason string
	}{
		"no vpd of the function": {func(sys fstest.MapFS) { delete(sys, placeOf(sys, "0008:03:00.0")+"/vpd") },
			"keyword V3 in the vpd file of DMA function 0008:03:00.0 is unknown"},
		"a damaged vpd of the function": {func(sys fstest.MapFS) {
			f := sys[placeOf(sys, "0008:03:00.0")+"/vpd"]
			f.Data = f.Data[:len(f.Data)/2]
		}, "keyword V3 in the vpd file of DMA function 0008:03:00.0 is unknown"},
		"no PF of the function": {func(sys fstest.MapFS) {
			setVPD(sys, "0000:03:00.0", "V3=c")
			setVPD(sys, "0000:03:00.1", "SN=1")
		}, "no ConnectX NIC has the V3 of DMA function 0008:03:00.0; " +
			"keyword V3 in the vpd file of 0000:03:00.1 is unknown"},
		"two functions of one NIC": {func(sys fstest.MapFS) {
			add(sys, "pci0010:00/0010:00:00.0/0010:01:00.0", "0x020700", "1")
			add(sys, "pci0010:00/0010:00:00.0", bridge, "1")
			ids(sys, "15b3:2100 0010:01:00.0")
			setVPD(sys, "0010:01:00.0", "V3=a")
		}, "no GPU is below the switch of DMA function 0010:01:00.0"},
	} {
		sys := dmaMachine()
		c.change(sys)
		tree := tree(t, sys)
		if got := levels(tree, "0009:06:00.0", "0002:03:00.0"); got != "PIX" {
			t.Errorf("%s: the other complex is %s", name, got)
		}
		if got := levels(tree, "0008:06:00.0", "0000:03:00.0"); got != "NODE" {
			t.Errorf("%s: %s", name, got)
		}
		hasReason := func(found topology.Complex) bool { return strings.Contains(found.Fault, c.reason) }
		if all := tree.Complexes(); !slices.ContainsFunc(all, hasReason) {
			t.Errorf("%s: complexes %v, want the reason %q", name, all, c.reason)
		}
	}
}

// graceMachine has GPUs on root ports of Grace, and NICs on other root ports of both NUMA nodes.
func graceMachine() fstest.MapFS {
	sys := sysfs("0-1",
		"pci0008:00/0008:00:00.0/0008:01:00.0 "+display+" 0", "pci0009:00/0009:00:00.0/0009:01:00.0 "+display+" 0",
		"pci0018:00/0018:00:00.0/0018:01:00.0 "+display+" 1",
		"pci0000:00/0000:00:00.0/0000:01:00.0 "+nic+" 0", "pci0010:00/0010:00:00.0/0010:01:00.0 "+nic+" 1",
		"pci0010:00/0010:00:00.0/0010:01:00.1 "+nic+" 1", "pci0005:00/0005:00:00.0/0005:01:00.0 "+nic+" 0")
	ids(sys, "10de:2941 0008:01:00.0 0009:01:00.0 0018:01:00.0",
		"15b3:1021 0000:01:00.0 0010:01:00.0 0010:01:00.1",
		"8086:1563 0005:01:00.0", "10de:22b1 0008:00:00.0 0009:00:00.0 0018:00:00.0")
	return sys
}

func TestC2C(t *testing.T) {
	t.Parallel()
	sys := graceMachine()
	read := tree(t, sys)
	others := []string{"0000:01:00.0", "0010:01:00.0", "0005:01:00.0", "0009:01:00.0", "0018:01:00.0"}
	if got := levels(read, "0008:01:00.0", others...); got != "C2C SYS NODE NODE SYS" {
		t.Errorf("NUMA node 0: %s", got)
	}
	if got := levels(read, "0018:01:00.0", others[:2]...); got != "SYS C2C" {
		t.Errorf("NUMA node 1: %s", got)
	}
	if a, b := read.Switch(address("0008:01:00.0")), read.Switch(address("0000:01:00.0")); a != b ||
		!topology.IsSwitch(a) {
		t.Errorf("places %s and %s", a, b)
	}
	// without its NUMA node nobody knows the NICs of a GPU, and the complex says so
	unknown := graceMachine()
	unknown[placeOf(unknown, "0018:01:00.0")+"/numa_node"].Data = []byte("-1\n")
	found := slices.ContainsFunc(tree(t, unknown).Complexes(), func(c topology.Complex) bool {
		return c.Fault == "the NUMA node of the GPUs is unknown" && len(c.NICs) == 0
	})
	if got := levels(tree(t, unknown), "0008:01:00.0", others[0]); got != "C2C" || !found {
		t.Errorf("the other GPU's NUMA node is unknown: %s, fault of its complex %t", got, found)
	}
	// another root port: a GPU in a slot has no NVLink-C2C
	ids(sys, "8086:352a 0018:00:00.0")
	if got := levels(tree(t, sys), "0008:01:00.0", others[0]); got != "NODE" {
		t.Errorf("GPU on another root port beside: %s", got)
	}
}

// inlineMachine has a NIC and two GPUs below the switch of the NIC.
func inlineMachine() fstest.MapFS {
	const up = "pci0000:80/0000:80:01.0/0000:81:00.0/"
	sys := sysfs("0-1", up+"0000:82:00.0/0000:83:00.0 "+nic+" 0",
		up+"0000:82:01.0/0000:84:00.0/0000:85:00.0/0000:86:00.0 "+display+" 0",
		up+"0000:82:02.0/0000:87:00.0/0000:88:00.0/0000:89:00.0 "+display+" 0",
		"pci0000:c0/0000:c0:01.0/0000:c1:00.0 "+nic+" 1")
	ids(sys, "15b3:1023 0000:83:00.0", "10de:2941 0000:86:00.0 0000:89:00.0",
		"15b3:197c 0000:81:00.0 0000:82:00.0 0000:82:01.0 0000:82:02.0", "15b3:1021 0000:c1:00.0")
	return sys
}

func TestInline(t *testing.T) {
	t.Parallel()
	const direct, redirect, translated = 0, 0x1d, 0x5d
	for name, c := range map[string]struct {
		port       uint16 // of the NIC
		ats        bool
		others     uint16
		redirected int
	}{
		"bare metal":                      {direct, false, direct, 0},
		"redirected":                      {redirect, false, redirect, 2},
		"virtualised":                     {translated, true, redirect, 0},
		"virtualised, and without ATS":    {translated, false, redirect, 2},
		"ATS, and the port without DT":    {redirect, true, redirect, 2},
		"requests of the GPU, completion": {direct, false, 0x15, 0},
	} {
		sys := inlineMachine()
		setPort(sys, "0000:82:00.0", c.port, false)
		setPort(sys, "0000:83:00.0", 0, c.ats)
		for _, port := range []string{"0000:82:01.0", "0000:82:02.0"} {
			setPort(sys, port, c.others, false)
		}
		read := tree(t, sys)
		if got := levels(read, "0000:86:00.0", "0000:83:00.0", "0000:c1:00.0"); got != "PIX SYS" {
			t.Errorf("%s: %s", name, got)
		}
		if got := read.Redirected(address("0000:86:00.0")); got != c.redirected {
			t.Errorf("%s: %d bridges above a redirect, want %d", name, got, c.redirected)
		}
		if got := read.Complexes(); len(got) != 1 || got[0].Kind != topology.KindInline || len(got[0].GPUs) != 2 {
			t.Errorf("%s: complexes %v", name, got)
		}
	}
}

// TestDMAPorts: the ports of a DMA complex redirect what does not matter to GPUDirect RDMA.
func TestDMAPorts(t *testing.T) {
	t.Parallel()
	sys := dmaMachine()
	setPort(sys, "0008:02:00.0", 0x19, false) // of the DMA function: completions
	setPort(sys, "0008:02:01.0", 0x15, false) // of the GPU: requests
	setPort(sys, "0008:00:00.0", 0x1c, false)
	// as the kernel sets it, in the part for the GPU alone
	setPort(sys, "0008:05:00.0", 0x1d, false)
	for _, class := range []string{"0x020700", "0x088000", "0x120000"} { // of the DMA function
		file(sys, placeOf(sys, "0008:03:00.0")+"/class", class)
		read := tree(t, sys)
		for _, a := range []string{"0008:06:00.0", "0000:03:00.1"} {
			if got := read.Redirected(address(a)); got != 0 {
				t.Errorf("class %s: %s: %d bridges above a redirect", class, a, got)
			}
		}
		ports := read.Ports(address("0008:06:00.0"), address("0000:03:00.1"))
		if slices.ContainsFunc(ports, func(p topology.Port) bool { return p.Redirects }) {
			t.Errorf("class %s: ports %v", class, ports)
		}
	}
	setPort(sys, "0008:02:00.0", 0x1d, false)
	if got := tree(t, sys).Redirected(address("0000:03:00.1")); got != 2 {
		t.Errorf("with redirected requests of the DMA function: %d bridges above a redirect", got)
	}
}
