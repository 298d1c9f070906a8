// SPDX-License-Identifier: Apache-2.0

package capability

import (
	"encoding/binary"
	"io"
)

// Config is the part of a function's configuration space that matters to placement (PCI Express Base
// Specification; PCI_EXT_CAP_… and PCI_ACS_… in include/uapi/linux/pci_regs.h).
type Config struct {
	ACS     bool   // the function has Access Control Services
	Control uint16 // ACS control register; 0 without ACS
	ATS     bool   // the function has Address Translation Services
}

const (
	configHeader   = 64   // readable by everybody
	configLegacy   = 256  // extended capabilities begin here
	configSize     = 4096 // with extended capabilities
	extendedACS    = 0x000d
	extendedATS    = 0x000f
	acsControl     = 6          // offset of the control register
	versionOne     = 1 << 16    // of a capability
	headerSize     = 8          // of the part of a capability that is read
	noCapability   = 0xffffffff // read from a removed device
	nextCapability = 20         // bits below the offset of the next capability
)

// ReadConfig walks the list of extended capabilities: a header of ID (16 bits), version (4) and offset of the
// next capability (12). ReadConfig reads only the necessary parts: every four bytes are a request to the
// function. It returns false if the facts are unknown: without CAP_SYS_ADMIN only 64 bytes are readable.
func ReadConfig(config io.ReaderAt) (c Config, known bool) {
	var capability [headerSize]byte
	read := func(offset int) bool {
		_, err := config.ReadAt(capability[:], int64(offset))
		return err == nil
	}
	if !read(configHeader) {
		return Config{}, false
	}
	seen := map[int]bool{}
	for offset := configLegacy; offset >= configLegacy && !seen[offset] && read(offset); {
		seen[offset] = true
		header := binary.LittleEndian.Uint32(capability[:])
		if header == noCapability {
			return Config{}, false
		}
		switch header & 0xffff {
		case extendedACS:
			c.ACS, c.Control = true, binary.LittleEndian.Uint16(capability[acsControl:])
		case extendedATS:
			c.ATS = true
		}
		offset = int(header >> nextCapability)
	}
	return c, true
}

// Bytes returns a configuration space with these capabilities alone. The header is zero.
func (c Config) Bytes() []byte {
	var ids []uint32
	if c.ACS {
		ids = append(ids, extendedACS)
	}
	if c.ATS {
		ids = append(ids, extendedATS)
	}
	config := make([]byte, configSize)
	for i, id := range ids {
		offset := configLegacy + i*headerSize
		header := versionOne | id
		if i+1 < len(ids) {
			header |= uint32(offset+headerSize) << nextCapability
		}
		binary.LittleEndian.PutUint32(config[offset:], header)
		if id == extendedACS {
			binary.LittleEndian.PutUint16(config[offset+acsControl:], c.Control)
		}
	}
	return config
}
