// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"testing/fstest"
)

func TestEffect(t *testing.T) {
	t.Parallel()
	port := Address{Bus: 0x80, Device: 1}
	for _, c := range []struct {
		config []byte
		want   ACS
	}{
		{nil, ACSUnknown},
		{make([]byte, 64), ACSUnknown}, // without privilege
		{Capabilities{}.Bytes(), ACSOff},
		{Capabilities{ACS: true, Control: 0x01}.Bytes(), ACSOff},      // validation alone
		{Capabilities{ACS: true, Control: 0x04}.Bytes(), ACSRedirect}, // requests
		{Capabilities{ACS: true, Control: 0x08}.Bytes(), ACSRedirect}, // completions
		{Capabilities{ACS: true, Control: 0x1d}.Bytes(), ACSRedirect}, // as the kernel sets it with an IOMMU
	} {
		sys := fstest.MapFS{PCIDevices + "/0000:80:01.0/config": {Data: c.config}}
		got := ACSUnknown
		if read, known := readCapabilities(sys, port); known {
			got = read.effectOf()
		}
		if got != c.want {
			t.Errorf("%d bytes: %s; want %s", len(c.config), got, c.want)
		}
	}
	if got, known := readCapabilities(fstest.MapFS{}, port); known {
		t.Errorf("no such port: %+v", got)
	}
}

// Two devices of one switch, a device of another below the same root port, and one elsewhere.
func TestPathBelow(t *testing.T) {
	t.Parallel()
	root, upstream, left, right, other := Address{Bus: 1}, Address{Bus: 2}, Address{Bus: 3},
		Address{Bus: 3, Device: 1}, Address{Bus: 4}
	devices := map[Address]*Device{}
	add := func(bus uint8, bridges ...Address) Address {
		a := Address{Bus: bus}
		devices[a] = &Device{Address: a, bridges: bridges}
		return a
	}
	gpu, nic := add(0x10, root, upstream, left), add(0x11, root, upstream, right)
	far, away := add(0x12, root, other), add(0x13, Address{Bus: 9})
	devices[Address{Bus: 0x11, Function: 1}] = &Device{
		Address: Address{Bus: 0x11, Function: 1}, PF: nic, bridges: []Address{{Bus: 0x77}},
	}
	tree := newTree(devices, nil)
	for _, c := range []struct {
		a, b Address
		want []Address
	}{
		{gpu, nic, []Address{left, right}},
		{gpu, Address{Bus: 0x11, Function: 1}, []Address{left, right}},
		{gpu, far, []Address{upstream, left, other}},
		{gpu, away, nil},
		{nic, Address{Bus: 0x11, Function: 1}, nil},
		{gpu, Address{Bus: 0x55}, nil},
	} {
		var got []Address
		for _, port := range tree.Ports(c.a, c.b) {
			got = append(got, port.Address)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("between %s and %s: %v; want %v", c.a, c.b, got, c.want)
		}
	}
}

// A switch of which one port redirects, with another switch below that port.
func TestRedirected(t *testing.T) {
	t.Parallel()
	devices := map[Address]*Device{}
	add := func(bus uint8, acs ACS, bridges ...Address) Address {
		a := Address{Bus: bus}
		devices[a] = &Device{Address: a, ACS: acs, bridges: bridges}
		if acs != ACSUnknown {
			devices[a].Class = 0x060400
		}
		return a
	}
	root := add(1, ACSRedirect) // its traffic is at the host bridge anyhow
	upstream := add(2, ACSOff, root)
	good := add(3, ACSOff, root, upstream)
	bad := add(4, ACSRedirect, root, upstream)
	second := add(5, ACSOff, root, upstream, bad)
	left, right := add(6, ACSOff, root, upstream, bad, second), add(7, ACSRedirect, root, upstream, bad, second)
	want := map[Address]int{}
	want[add(0x10, ACSUnknown, root, upstream, good)] = 0
	want[add(0x11, ACSUnknown, root, upstream, bad, second, left)] = 2 // root and upstream are above bad
	want[add(0x12, ACSUnknown, root, upstream, bad, second, right)] = 4
	tree := newTree(devices, nil)
	for a, redirected := range want {
		if got := tree.Redirected(a); got != redirected {
			t.Errorf("%s below %v: %d of %v; want %d", a, devices[a].bridges, got, tree.SharedBridges(a), redirected)
		}
	}
}

// TestTranslatedOnTheWholeWay: translated requests take no detour if each redirecting port allows it, not
// only the port right above the NIC.
func TestTranslatedOnTheWholeWay(t *testing.T) {
	t.Parallel()
	upper, last, nic := Address{Bus: 1}, Address{Bus: 2}, Address{Bus: 3}
	for _, c := range []struct {
		acs     ACS
		control uint16
		want    bool
	}{
		{ACSOff, 0, true}, {ACSRedirect, ACSRequests, false}, {ACSRedirect, ACSRequests | ACSTranslated, true},
		{ACSRedirect, ACSCompletions, true}, {ACSRedirect, 0, false}, // only the effect is known
	} {
		tree := newTree(map[Address]*Device{
			upper: {Address: upper, ACS: c.acs, Control: c.control},
			last:  {Address: last, ACS: ACSRedirect, Control: ACSRequests | ACSTranslated},
			nic:   {Address: nic, ATS: true, bridges: []Address{upper, last}},
		}, nil)
		if got := tree.isTranslated(tree.devices[nic], []Address{upper, last}); got != c.want {
			t.Errorf("%s with control %#x above: %t", c.acs, c.control, got)
		}
	}
}

// space is a configuration space of this size with extended capabilities: at these offsets, with these IDs,
// and what follows the header.
func space(size int, capabilities ...[3]uint32) []byte {
	c := make([]byte, size)
	for i, capability := range capabilities {
		next := uint32(0)
		if i+1 < len(capabilities) {
			next = capabilities[i+1][0]
		}
		binary.LittleEndian.PutUint32(c[capability[0]:], next<<20|1<<16|capability[1])
		binary.LittleEndian.PutUint32(c[capability[0]+4:], capability[2])
	}
	return c
}

const (
	advancedErrors = 0x0001 // ID of another capability
	serialNumber   = 0x0003 // and another
	control        = 16     // of the dword that holds both registers of ACS
)

func TestReadCapabilities(t *testing.T) {
	t.Parallel()
	gone := bytes.Repeat([]byte{0xff}, configSize)
	loop := space(4096, [3]uint32{0x100, advancedErrors}, [3]uint32{0x200, extendedATS})
	binary.LittleEndian.PutUint32(loop[0x200:], 0x100<<nextCapability|extendedATS)
	for _, c := range []struct {
		name   string
		config []byte
		known  bool
		want   Capabilities
	}{
		{"without privilege", space(64), false, Capabilities{}},
		{"nothing", nil, false, Capabilities{}},
		{"gone", gone, false, Capabilities{}},
		{"conventional PCI", space(256), true, Capabilities{}},
		{"no capability", space(4096), true, Capabilities{}},
		{"others", space(4096, [3]uint32{0x100, advancedErrors, 0xffffffff},
			[3]uint32{0x148, serialNumber, 0xffffffff}), true, Capabilities{}},
		{"off", space(4096, [3]uint32{0x100, advancedErrors}, [3]uint32{0x148, extendedACS, 0x005f}), true,
			Capabilities{ACS: true}},
		{"as the kernel sets it with an IOMMU", space(4096, [3]uint32{0x100, extendedACS, 0x005f | 0x1d<<control}),
			true, Capabilities{ACS: true, Control: 0x1d}},
		{"both", space(4096, [3]uint32{0x100, extendedATS}, [3]uint32{0x150, extendedACS, 0x5d << control}), true,
			Capabilities{ACS: true, Control: 0x5d, ATS: true}},
		{"cut off", space(4096, [3]uint32{0x100, extendedACS, 0x1d << control})[:0x104], true, Capabilities{}},
		{"a loop", loop, true, Capabilities{ATS: true}},
	} {
		got, known := ReadCapabilities(bytes.NewReader(c.config))
		if got != c.want || known != c.known {
			t.Errorf("%s: %+v, %t; want %+v, %t", c.name, got, known, c.want, c.known)
		}
	}
}

func TestCapabilitiesBytes(t *testing.T) {
	t.Parallel()
	for _, c := range []Capabilities{
		{}, {ATS: true}, {ACS: true}, {ACS: true, Control: 0x1d}, {ACS: true, Control: 0xffff, ATS: true},
	} {
		if got, known := ReadCapabilities(bytes.NewReader(c.Bytes())); got != c || !known {
			t.Errorf("%+v is read as %+v, %t", c, got, known)
		}
	}
}

// FuzzReadCapabilities: the facts of any configuration space survive Bytes.
func FuzzReadCapabilities(f *testing.F) {
	f.Add(space(4096, [3]uint32{0x100, advancedErrors, 0}, [3]uint32{0x148, extendedACS, 0x1d << control}))
	f.Add(Capabilities{ACS: true, Control: 0x5d, ATS: true}.Bytes())
	f.Fuzz(func(t *testing.T, config []byte) {
		c, known := ReadCapabilities(bytes.NewReader(config))
		if again, _ := ReadCapabilities(bytes.NewReader(c.Bytes())); known && again != c {
			t.Errorf("%+v is read as %+v", c, again)
		}
	})
}
