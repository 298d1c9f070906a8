// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
)

// ACS is what the Access Control Services of a port do to traffic between the devices below it (PCI Express
// Base Specification, section "ACS Extended Capability"; PCI_ACS_… in include/uapi/linux/pci_regs.h).
type ACS int

// What can be known of a port.
const (
	ACSUnknown  ACS = iota // its configuration space cannot be read beyond 64 bytes: that takes CAP_SYS_ADMIN
	ACSOff                 // it has none, or they let requests and completions pass to other ports
	ACSRedirect            // requests or completions are sent up to the root complex, whose IOMMU is to see them
)

// String is "unknown", "off" or "redirect".
func (a ACS) String() string { return [...]string{"unknown", "off", "redirect"}[a] }

// MarshalText prints the word.
func (a ACS) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

const (
	configHeader   = 64  // what everybody may read
	configLegacy   = 256 // where extended capabilities begin
	extendedACS    = 0x000d
	acsControl     = 6          // offset of the control register
	acsRequests    = 1 << 2     // P2P request redirect
	acsCompletions = 1 << 3     // P2P completion redirect
	noCapability   = 0xffffffff // what a device that is gone reads as
)

// readACS reads the file config of a port, no more of it than it needs: every four bytes are a request to the
// port. A root or downstream port decides for traffic that comes up through it.
func readACS(sys fs.FS, port Address) (ACS, error) {
	config, err := sys.Open(path.Join(pciDevices, port.String(), "config"))
	if err != nil {
		return ACSUnknown, fmt.Errorf("read config of %s: %w", port, err)
	}
	defer func() { _ = config.Close() }() // it was read only
	at, ok := config.(io.ReaderAt)
	if !ok {
		return ACSUnknown, fmt.Errorf("read config of %s: %T cannot be read from the middle", port, config)
	}
	return parseACS(at), nil
}

// parseACS walks the list of extended capabilities: a header of ID (16 bits), version (4) and offset of the
// next one (12).
func parseACS(config io.ReaderAt) ACS {
	var capability [8]byte
	read := func(offset int) bool {
		_, err := config.ReadAt(capability[:], int64(offset))
		return err == nil
	}
	if !read(configHeader) {
		return ACSUnknown
	}
	seen := map[int]bool{}
	for offset := configLegacy; offset >= configLegacy && !seen[offset] && read(offset); {
		seen[offset] = true
		header := binary.LittleEndian.Uint32(capability[:])
		if header == noCapability {
			return ACSUnknown
		}
		if header&0xffff == extendedACS {
			if binary.LittleEndian.Uint16(capability[acsControl:])&(acsRequests|acsCompletions) != 0 {
				return ACSRedirect
			}
			return ACSOff
		}
		offset = int(header >> 20)
	}
	return ACSOff
}

// PathBelow lists the bridges between two functions and the lowest bridge that they share, that one left out:
// the ports that decide whether their traffic turns round there. It is nil where they share none, and for
// functions of one card.
func (t *Tree) PathBelow(a, b Address) []Address {
	da, db := t.devices[a], t.devices[b]
	if da == nil || db == nil || da.Function().Slot() == db.Function().Slot() {
		return nil
	}
	above, below := t.pluggedIn(da).bridges, t.pluggedIn(db).bridges
	common := shared(above, below)
	if common == 0 {
		return nil
	}
	return slices.Concat(above[common:], below[common:])
}

// Redirected tells how many of a function's SharedBridges, from the top, lie above a port that redirects what
// the function sends: its traffic with others below these bridges does not turn round there but goes up to
// the host bridge.
func (t *Tree) Redirected(a Address) int { return t.redirected[a] }

// aboveRedirect counts the shared ones of a function's bridges that lie above the lowest one that redirects.
func (t *Tree) aboveRedirect(bridges, shared []Address) int {
	lowest := len(bridges) - 1
	for lowest >= 0 && !t.redirects(bridges[lowest]) {
		lowest--
	}
	above := 0
	for _, bridge := range bridges[:max(lowest, 0)] {
		if above < len(shared) && bridge == shared[above] {
			above++
		}
	}
	return above
}

func (t *Tree) redirects(bridge Address) bool {
	d, ok := t.devices[bridge]
	return ok && d.ACS == ACSRedirect
}
