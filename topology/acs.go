// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"encoding/binary"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
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

// Bits of the ACS control register (Device.Control).
const (
	ACSRequests    uint16 = 1 << 2 // P2P request redirect
	ACSCompletions uint16 = 1 << 3 // P2P completion redirect
	ACSTranslated  uint16 = 1 << 6 // direct translated P2P
)

// effectOf returns what the capabilities of a root port or downstream port do to the upstream traffic through
// the port.
func (c Capabilities) effectOf() ACS {
	if c.Control&(ACSRequests|ACSCompletions) != 0 {
		return ACSRedirect
	}
	return ACSOff
}

// readCapabilities reads a function's file config. It returns false if the file, or what is in it, is
// unknown.
func readCapabilities(sys fs.FS, function Address) (c Capabilities, known bool) {
	config, err := sys.Open(path.Join(PCIDevices, function.String(), "config"))
	if err != nil {
		return c, false
	}
	defer func() { _ = config.Close() }() // opened for reading
	at, ok := config.(io.ReaderAt)
	if !ok {
		return c, false
	}
	return ReadCapabilities(at)
}

// Capabilities are the extended capabilities of a function that matter to placement (PCI Express Base
// Specification; PCI_EXT_CAP_… and PCI_ACS_… in include/uapi/linux/pci_regs.h).
type Capabilities struct {
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

// ReadCapabilities walks the list of extended capabilities: a header of ID (16 bits), version (4) and offset
// of the next capability (12). It reads only the necessary parts: every four bytes are a request to the
// function. It returns false if the facts are unknown: without CAP_SYS_ADMIN only 64 bytes are readable.
func ReadCapabilities(config io.ReaderAt) (c Capabilities, known bool) {
	var capability [headerSize]byte
	read := func(offset int) bool {
		_, err := config.ReadAt(capability[:], int64(offset))
		return err == nil
	}
	if !read(configHeader) {
		return Capabilities{}, false
	}
	seen := map[int]bool{}
	for offset := configLegacy; offset >= configLegacy && !seen[offset] && read(offset); {
		seen[offset] = true
		header := binary.LittleEndian.Uint32(capability[:])
		if header == noCapability {
			return Capabilities{}, false
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
func (c Capabilities) Bytes() []byte {
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

// Redirected returns the number of a function's SharedBridges, from the top, above a port that redirects the
// function's traffic: traffic to other devices below these bridges takes the way through the host bridge. The
// traffic of a GPU counts if a NIC below the bridge sends untranslated requests. [Tree.Ports] tells about a
// single pair.
func (t *Tree) Redirected(a Address) int { return t.redirected[a] }

// aboveRedirect returns the number of shared bridges above the lowest redirecting bridge of a function.
func (t *Tree) aboveRedirect(d *Device, shared []Address) int {
	for n := len(shared); n > 0; n-- {
		at := shared[n-1]
		way := t.chainBelow(d, at)
		translated := t.translated[at]
		if t.sendsRequests(d) {
			translated = t.isTranslated(d, way)
		}
		if slices.ContainsFunc(way, func(port Address) bool { return t.isRedirected(port, d, translated) }) {
			return n
		}
	}
	return 0
}

// chainBelow returns the part of a function's chain below a bridge of the chain.
func (t *Tree) chainBelow(d *Device, bridge Address) []Address {
	chain := t.pluggedIn(d).bridges
	return chain[slices.Index(chain, bridge)+1:]
}

// isRedirected reports whether a port redirects a function's part of GPUDirect RDMA: the requests of a NIC,
// the completions of a GPU. Translated requests and their completions take no detour.
func (t *Tree) isRedirected(at Address, of *Device, translated bool) bool {
	port, ok := t.devices[at]
	switch {
	case !ok || port.ACS != ACSRedirect, t.isInner(port, of):
		return false
	case port.Control == 0: // only the effect is known
		return true
	case translated:
		return false
	case t.sendsRequests(of):
		return port.Control&ACSRequests != 0
	default:
		return port.Control&ACSCompletions != 0
	}
}

// sendsRequests reports whether a function's part of GPUDirect RDMA are the requests: a DMA function, or a
// NIC, whatever the class of its DMA function.
func (t *Tree) sendsRequests(d *Device) bool {
	if pf, ok := t.devices[d.PF]; ok && d.IsVF() {
		d = pf
	}
	return d.Class.IsNetwork() || d.isDMAFunction()
}

// isInner reports whether a port is in a part of a NIC's switch that leads to one card alone, as the part
// above the GPU of a DMA complex, whose ports have the kernel's ACS. What such a port hands up leaves this
// part in any case, and the port of the part above decides.
func (t *Tree) isInner(port, of *Device) bool {
	if len(port.bridges) == 0 {
		return false
	}
	above, ok := t.devices[port.bridges[len(port.bridges)-1]]
	return ok && above.IsNICSwitch() && !slices.Contains(t.bridgesOf(of.Address), above.Address)
}

// isTranslated reports whether a NIC sends translated requests that take no detour on a way up (ACS Direct
// Translated P2P): the NIC has ATS, and the port right above and all redirecting ports allow it.
func (t *Tree) isTranslated(nic *Device, way []Address) bool {
	if len(way) == 0 || !t.pluggedIn(nic).ATS {
		return false
	}
	for i, a := range way {
		port, ok := t.devices[a]
		redirects := ok && port.ACS == ACSRedirect && (port.Control == 0 || port.Control&ACSRequests != 0)
		if (redirects || i == len(way)-1) && (!ok || port.Control&ACSTranslated == 0) {
			return false
		}
	}
	return true
}

// findTranslated finds for each bridge with NICs below whether all of these send translated requests up to
// the bridge.
func (t *Tree) findTranslated() {
	for _, d := range t.devices {
		if !d.IsNIC() || d.Function() != d.Address {
			continue
		}
		for _, bridge := range t.shared[d.Address] {
			all, seen := t.translated[bridge]
			t.translated[bridge] = (all || !seen) && t.isTranslated(d, t.chainBelow(d, bridge))
		}
	}
}

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
			return readKeywords(content[:length])
		}
		content = content[length:]
	}
	return VPD{}
}

// readKeywords reads the keywords of a resource up to a damaged one; of several with one name the first
// counts.
func readKeywords(resource []byte) (v VPD) {
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
