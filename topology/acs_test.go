// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"testing/fstest"
)

// config is a configuration space of this size with extended capabilities: at these offsets, with these IDs,
// and what follows the header.
func config(size int, capabilities ...[3]uint32) []byte {
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

func TestParseCapabilities(t *testing.T) {
	t.Parallel()
	const control = 16 // of the dword that holds both registers
	loop := config(4096, [3]uint32{0x100, 0x0001, 0}, [3]uint32{0x200, 0x0003, 0}, [3]uint32{0x100, 0x0001, 0})
	gone := config(4096)
	for i := range gone {
		gone[i] = 0xff
	}
	for _, c := range []struct {
		name   string
		config []byte
		want   ACS
	}{
		{"without privilege", config(64), ACSUnknown},
		{"nothing", nil, ACSUnknown},
		{"conventional PCI", config(256), ACSOff},
		{"no capability", config(4096), ACSOff},
		{"none of them ACS",
			config(4096, [3]uint32{0x100, 0x0001, 0xffffffff}, [3]uint32{0x148, 0x0003, 0xffffffff}), ACSOff},
		{"off", config(4096, [3]uint32{0x100, 0x0001, 0}, [3]uint32{0x148, extendedACS, 0x005f}), ACSOff},
		{"validation alone", config(4096, [3]uint32{0x100, extendedACS, 0x005f | 1<<control}), ACSOff},
		{"requests", config(4096, [3]uint32{0x100, extendedACS, 0x005f | 0x4<<control}), ACSRedirect},
		{"completions", config(4096, [3]uint32{0x100, 0x0001, 0}, [3]uint32{0x150, extendedACS, 0x8 << control}),
			ACSRedirect},
		{"as the kernel sets it with an IOMMU", config(4096, [3]uint32{0x100, extendedACS, 0x005f | 0x1d<<control}),
			ACSRedirect},
		{"cut off", config(4096, [3]uint32{0x100, extendedACS, 0x1d << control})[:0x104], ACSOff},
		{"a loop", loop, ACSOff},
		{"gone", gone, ACSUnknown},
	} {
		if got := parseCapabilities(bytes.NewReader(c.config)).acs; got != c.want {
			t.Errorf("%s: %s; want %s", c.name, got, c.want)
		}
	}
}

func FuzzParseCapabilities(f *testing.F) {
	f.Add(config(4096, [3]uint32{0x100, 0x0001, 0}, [3]uint32{0x148, extendedACS, 0x1d << 16}))
	f.Fuzz(func(t *testing.T, config []byte) { _ = parseCapabilities(bytes.NewReader(config)).acs.String() })
}

func TestReadCapabilities(t *testing.T) {
	t.Parallel()
	port := Address{Bus: 0x80, Device: 1}
	sys := fstest.MapFS{
		pciDevices + "/0000:80:01.0/config": {Data: config(4096, [3]uint32{0x100, extendedACS, 0x1d << 16})},
	}
	if got, err := readCapabilities(sys, port); got.acs != ACSRedirect || err != nil {
		t.Errorf("%s, %v", got.acs, err)
	}
	if got, err := readCapabilities(sys, Address{}); got.acs != ACSUnknown || err == nil {
		t.Errorf("no such port: %s, %v", got.acs, err)
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
