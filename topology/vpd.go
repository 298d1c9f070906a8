// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"encoding/binary"
	"io"
	"slices"
	"strings"
)

// VPD has the keywords of a function's Vital Product Data that tell which functions belong together (PCI
// Local Bus Specification 3.0, appendix I).
type VPD struct {
	V3 string // common to a DMA function and its PFs; "" for none
	SN string // serial number of the board; "" for none
	// ManagesNVSwitches is the field SMDL=SW_MNG of a vendor's keyword: the function manages NVSwitches (the
	// start script of NVIDIA's fabric manager looks for the field)
	ManagesNVSwitches bool
}

// managesNVSwitches is a field of a vendor's keyword, in which ":" separates fields.
const managesNVSwitches = "SMDL=SW_MNG"

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
// tag is the end. The keywords of an unreadable or damaged part are "". The error is that of the reader, if
// no part with keywords is readable.
func ReadVPD(vpd io.Reader) (VPD, error) {
	content, err := io.ReadAll(io.LimitReader(vpd, vpdSize))
	if found := findKeywords(content); found != (VPD{}) {
		return found, nil
	}
	return VPD{}, err
}

func findKeywords(content []byte) VPD {
	for len(content) >= vpdKeyword && content[0]&vpdLarge != 0 {
		tag, length := content[0], int(binary.LittleEndian.Uint16(content[1:]))
		content = content[vpdKeyword:]
		if length > len(content) {
			break
		}
		if tag == vpdReadOnly {
			return keywords(content[:length])
		}
		content = content[length:]
	}
	return VPD{}
}

// keywords reads the keywords of a resource up to a damaged one; of several with one name the first counts.
func keywords(resource []byte) (v VPD) {
	for len(resource) >= vpdKeyword {
		name, length := string(resource[:2]), int(resource[2])
		resource = resource[vpdKeyword:]
		if length > len(resource) {
			break
		}
		value := strings.TrimRight(string(resource[:length]), " \x00")
		resource = resource[length:]
		switch {
		case name == "V3":
			v.V3 = cmp.Or(v.V3, value)
		case name == "SN":
			v.SN = cmp.Or(v.SN, value)
		case name[0] == 'V':
			fields := strings.Split(value, ":")
			v.ManagesNVSwitches = v.ManagesNVSwitches || slices.Contains(fields, managesNVSwitches)
		}
	}
	return v
}

// Bytes returns Vital Product Data with these keywords alone. Values are cut at LongestKeyword.
func (v VPD) Bytes() []byte {
	var keywords []byte
	board := ""
	if v.ManagesNVSwitches {
		board = managesNVSwitches
	}
	for _, k := range []struct{ name, value string }{{"SN", v.SN}, {"V3", v.V3}, {"VA", board}} {
		if k.value != "" {
			value := k.value[:min(len(k.value), LongestKeyword)]
			keywords = append(append(keywords, k.name...), byte(len(value)))
			keywords = append(keywords, value...)
		}
	}
	content := binary.LittleEndian.AppendUint16([]byte{vpdReadOnly}, uint16(len(keywords)))
	return append(append(content, keywords...), vpdEnd)
}
