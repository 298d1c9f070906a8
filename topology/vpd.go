// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"encoding/binary"
	"io"
	"io/fs"
	"path"
	"strings"
)

const (
	vpdSize     = 32 << 10 // the maximum, addressed by 15 bits
	vpdReadOnly = 0x90     // tag of the resource with V3, VPD-R
	vpdLarge    = 0x80     // bit of the tags with two bytes of length
	vpdKeyword  = 3        // bytes before a keyword's value: two letters and the length
)

// readV3 reads the keyword V3 of a function's Vital Product Data (PCI Local Bus Specification 3.0, appendix
// I), "" if the file vpd is absent, damaged or unreadable.
func readV3(sys fs.FS, function Address) string {
	file, err := sys.Open(path.Join(pciDevices, function.String(), "vpd"))
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()                     // opened for reading
	content, _ := io.ReadAll(io.LimitReader(file, vpdSize)) // a part may be readable
	return findV3(content)
}

// findV3 walks the resources: a large one has a tag with bit 7, a length of two bytes and content; any other
// tag is the end.
func findV3(content []byte) string {
	for len(content) >= vpdKeyword && content[0]&vpdLarge != 0 {
		tag, length := content[0], int(binary.LittleEndian.Uint16(content[1:]))
		content = content[vpdKeyword:]
		if length > len(content) {
			break
		}
		if tag == vpdReadOnly {
			return keyword(content[:length], "V3")
		}
		content = content[length:]
	}
	return ""
}

// keyword returns the value of a keyword in a resource; "" if the keyword is absent, or behind a damaged one.
func keyword(resource []byte, name string) string {
	for len(resource) >= vpdKeyword {
		found, length := string(resource[:2]), int(resource[2])
		resource = resource[vpdKeyword:]
		if length > len(resource) {
			break
		}
		if found == name {
			return strings.TrimRight(string(resource[:length]), " \x00")
		}
		resource = resource[length:]
	}
	return ""
}
