// SPDX-License-Identifier: Apache-2.0

package capability

import (
	"encoding/binary"
	"io"
	"strings"
)

// VPD has the keywords of a function's Vital Product Data that tell which functions belong together (PCI
// Local Bus Specification 3.0, appendix I).
type VPD struct {
	V3 string // common to a DMA function and its PFs; "" for none
	SN string // serial number of the board; "" for none
}

const (
	vpdSize     = 32 << 10 // the maximum, addressed by 15 bits
	vpdReadOnly = 0x90     // tag of the resource with the keywords, VPD-R
	vpdLarge    = 0x80     // bit of the tags with two bytes of length
	vpdEnd      = 0x78     // tag
	vpdKeyword  = 3        // bytes before a keyword's value: two letters and the length

	// LongestKeyword is the maximum length of a keyword's value, in bytes.
	LongestKeyword = 255
)

// ReadVPD walks the resources: a large one has a tag with bit 7, a length of two bytes and content; any other
// tag is the end. The keywords of an unreadable or damaged part are "". The error is that of the reader.
func ReadVPD(vpd io.Reader) (VPD, error) {
	content, err := io.ReadAll(io.LimitReader(vpd, vpdSize)) // a part may be readable
	return findKeywords(content), err
}

func findKeywords(content []byte) VPD {
	for len(content) >= vpdKeyword && content[0]&vpdLarge != 0 {
		tag, length := content[0], int(binary.LittleEndian.Uint16(content[1:]))
		content = content[vpdKeyword:]
		if length > len(content) {
			break
		}
		if tag == vpdReadOnly {
			return VPD{V3: keyword(content[:length], "V3"), SN: keyword(content[:length], "SN")}
		}
		content = content[length:]
	}
	return VPD{}
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

// Bytes returns Vital Product Data with these keywords alone. Values are cut at LongestKeyword.
func (v VPD) Bytes() []byte {
	var keywords []byte
	for _, k := range []struct{ name, value string }{{"SN", v.SN}, {"V3", v.V3}} {
		if k.value != "" {
			value := k.value[:min(len(k.value), LongestKeyword)]
			keywords = append(append(keywords, k.name...), byte(len(value)))
			keywords = append(keywords, value...)
		}
	}
	content := binary.LittleEndian.AppendUint16([]byte{vpdReadOnly}, uint16(len(keywords)))
	return append(append(content, keywords...), vpdEnd)
}
