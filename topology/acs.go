// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"path"
)

// ACS is the effect of a port's Access Control Services on traffic between the devices below (PCI Express
// Base Specification, section "ACS Extended Capability"; PCI_ACS_… in include/uapi/linux/pci_regs.h).
type ACS int

// The states of a port.
const (
	ACSUnknown  ACS = iota // the configuration space is readable beyond 64 bytes only with CAP_SYS_ADMIN
	ACSOff                 // no ACS, or requests and completions pass directly to other ports
	ACSRedirect            // requests or completions go up to the root complex and its IOMMU
)

// String returns "unknown", "off" or "redirect".
func (a ACS) String() string { return [...]string{"unknown", "off", "redirect"}[a] }

// MarshalText returns the result of String.
func (a ACS) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

const (
	configHeader   = 64  // readable by everybody
	configLegacy   = 256 // extended capabilities begin here
	extendedACS    = 0x000d
	extendedATS    = 0x000f
	acsControl     = 6          // offset of the control register
	acsRequests    = 1 << 2     // P2P request redirect
	acsCompletions = 1 << 3     // P2P completion redirect
	acsTranslated  = 1 << 6     // direct translated P2P
	noCapability   = 0xffffffff // read from a removed device
)

// pciDevices is the kernel's list of all PCI functions, each a link to a place in the tree.
const pciDevices = "bus/pci/devices"

// capabilities are the extended capabilities of a function that matter to placement.
type capabilities struct {
	acs     ACS
	control uint16 // of ACS
	ats     bool
}

// readCapabilities reads only the necessary parts of a function's file config: every four bytes are a request
// to the function. A root port or downstream port decides about the upstream traffic through the port.
func readCapabilities(sys fs.FS, function Address) (capabilities, error) {
	config, err := sys.Open(path.Join(pciDevices, function.String(), "config"))
	if err != nil {
		return capabilities{}, fmt.Errorf("read config of %s: %w", function, err)
	}
	defer func() { _ = config.Close() }() // opened for reading
	at, ok := config.(io.ReaderAt)
	if !ok {
		return capabilities{}, fmt.Errorf("read config of %s: %T cannot be read from the middle", function, config)
	}
	return parseCapabilities(at), nil
}

// parseCapabilities walks the list of extended capabilities: a header of ID (16 bits), version (4) and offset
// of the next capability (12).
func parseCapabilities(config io.ReaderAt) (c capabilities) {
	var capability [8]byte
	read := func(offset int) bool {
		_, err := config.ReadAt(capability[:], int64(offset))
		return err == nil
	}
	if !read(configHeader) {
		return c
	}
	seen := map[int]bool{}
	c.acs = ACSOff
	for offset := configLegacy; offset >= configLegacy && !seen[offset] && read(offset); {
		seen[offset] = true
		header := binary.LittleEndian.Uint32(capability[:])
		if header == noCapability {
			return capabilities{}
		}
		switch header & 0xffff {
		case extendedACS:
			c.control = binary.LittleEndian.Uint16(capability[acsControl:])
			if c.control&(acsRequests|acsCompletions) != 0 {
				c.acs = ACSRedirect
			}
		case extendedATS:
			c.ats = true
		}
		offset = int(header >> 20)
	}
	return c
}
