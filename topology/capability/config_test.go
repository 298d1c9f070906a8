// SPDX-License-Identifier: Apache-2.0

package capability

import (
	"bytes"
	"encoding/binary"
	"testing"
)

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

func TestReadConfig(t *testing.T) {
	t.Parallel()
	gone := bytes.Repeat([]byte{0xff}, configSize)
	loop := space(4096, [3]uint32{0x100, advancedErrors}, [3]uint32{0x200, extendedATS})
	binary.LittleEndian.PutUint32(loop[0x200:], 0x100<<nextCapability|extendedATS)
	for _, c := range []struct {
		name   string
		config []byte
		known  bool
		want   Config
	}{
		{"without privilege", space(64), false, Config{}},
		{"nothing", nil, false, Config{}},
		{"gone", gone, false, Config{}},
		{"conventional PCI", space(256), true, Config{}},
		{"no capability", space(4096), true, Config{}},
		{"others", space(4096, [3]uint32{0x100, advancedErrors, 0xffffffff},
			[3]uint32{0x148, serialNumber, 0xffffffff}), true, Config{}},
		{"off", space(4096, [3]uint32{0x100, advancedErrors}, [3]uint32{0x148, extendedACS, 0x005f}), true,
			Config{ACS: true}},
		{"as the kernel sets it with an IOMMU", space(4096, [3]uint32{0x100, extendedACS, 0x005f | 0x1d<<control}),
			true, Config{ACS: true, Control: 0x1d}},
		{"both", space(4096, [3]uint32{0x100, extendedATS}, [3]uint32{0x150, extendedACS, 0x5d << control}), true,
			Config{ACS: true, Control: 0x5d, ATS: true}},
		{"cut off", space(4096, [3]uint32{0x100, extendedACS, 0x1d << control})[:0x104], true, Config{}},
		{"a loop", loop, true, Config{ATS: true}},
	} {
		got, known := ReadConfig(bytes.NewReader(c.config))
		if got != c.want || known != c.known {
			t.Errorf("%s: %+v, %t; want %+v, %t", c.name, got, known, c.want, c.known)
		}
	}
}

func TestConfigBytes(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{
		{}, {ATS: true}, {ACS: true}, {ACS: true, Control: 0x1d}, {ACS: true, Control: 0xffff, ATS: true},
	} {
		if got, known := ReadConfig(bytes.NewReader(c.Bytes())); got != c || !known {
			t.Errorf("%+v is read as %+v, %t", c, got, known)
		}
	}
}

// FuzzReadConfig: the facts of any configuration space survive Bytes.
func FuzzReadConfig(f *testing.F) {
	f.Add(space(4096, [3]uint32{0x100, advancedErrors, 0}, [3]uint32{0x148, extendedACS, 0x1d << control}))
	f.Add(Config{ACS: true, Control: 0x5d, ATS: true}.Bytes())
	f.Fuzz(func(t *testing.T, config []byte) {
		c, known := ReadConfig(bytes.NewReader(config))
		if again, _ := ReadConfig(bytes.NewReader(c.Bytes())); known && again != c {
			t.Errorf("%+v is read as %+v", c, again)
		}
	})
}
