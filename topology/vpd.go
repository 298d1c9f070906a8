// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"encoding/binary"
	"io"
	"io/fs"
	"path"
	"strings"
)

// VPD holds keywords of a function's Vital Product Data (PCI Local Bus Specification 3.0, appendix I). Both
// keywords are "" if the file vpd is absent, damaged, or unreadable: only root reads the file.
type VPD struct {
	V3 string // of ConnectX NICs: UUID, common to a DMA function and the PFs that the function serves
	SN string // serial number of the board
}

const (
	vpdSize     = 32 << 10 // the maximum, addressed by 15 bits
	vpdReadOnly = 0x90     // tag of the resource with V3 and SN, VPD-R
	vpdLarge    = 0x80     // bit of the tags with two bytes of length
	vpdKeyword  = 3        // bytes before a keyword's value: two letters and the length
)

// readVPD reads the keywords of a function.
func readVPD(sys fs.FS, function Address) VPD {
	file, err := sys.Open(path.Join(pciDevices, function.String(), "vpd"))
	if err != nil {
		return VPD{}
	}
	defer func() { _ = file.Close() }()                     // opened for reading
	content, _ := io.ReadAll(io.LimitReader(file, vpdSize)) // a part may be readable
	return parseVPD(content)
}

// parseVPD walks the resources: a large one has a tag with bit 7, a length of two bytes and content; any
// other tag is the end, or a resource before Vital Product Data of no interest.
func parseVPD(content []byte) (v VPD) {
	for len(content) >= vpdKeyword && content[0]&vpdLarge != 0 {
		tag, length := content[0], int(binary.LittleEndian.Uint16(content[1:]))
		content = content[vpdKeyword:]
		if length > len(content) {
			return v
		}
		if tag == vpdReadOnly {
			v.read(content[:length])
		}
		content = content[length:]
	}
	return v
}

// read reads the keywords of a resource up to the first damaged one.
func (v *VPD) read(resource []byte) {
	for len(resource) >= vpdKeyword {
		name, length := string(resource[:2]), int(resource[2])
		resource = resource[vpdKeyword:]
		if length > len(resource) {
			return
		}
		value := strings.TrimRight(string(resource[:length]), " \x00")
		resource = resource[length:]
		switch name {
		case "V3":
			v.V3 = value
		case "SN":
			v.SN = value
		}
	}
}
