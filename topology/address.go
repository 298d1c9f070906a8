// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Address is the address of one PCI function: domain, bus, device and function ("BDF").
// An address is comparable and may be used as a map key.
type Address struct {
	Domain   uint32 // 0000 to ffffffff; more than four hex digits behind VMD and Hyper-V
	Bus      uint8  // 00 to ff
	Device   uint8  // 00 to 1f
	Function uint8  // 0 to 7
}

// ParseAddress reads an address in the kernel's format, "0000:81:00.0" (pci_setup_device in
// drivers/pci/probe.c: "%04x:%02x:%02x.%d"). The domain may have up to eight hex digits; upper case is
// accepted. The domain is never optional: two devices may differ only in the domain.
func ParseAddress(s string) (Address, error) {
	bad := func() (Address, error) {
		return Address{}, fmt.Errorf("parse PCI address %q: want domain:bus:device.function, as in 0000:81:00.0", s)
	}
	domain, rest, ok := strings.Cut(s, ":")
	bus, rest, ok2 := strings.Cut(rest, ":")
	device, function, ok3 := strings.Cut(rest, ".")
	if !ok || !ok2 || !ok3 || len(domain) < 4 || len(domain) > 8 || len(bus) != 2 || len(device) != 2 ||
		len(function) != 1 {
		return bad()
	}
	// A leading zero of a wide domain is an error, so that every address has a single notation.
	if len(domain) > 4 && domain[0] == '0' {
		return bad()
	}
	var a Address
	for _, f := range []struct {
		text string
		bits int
		set  func(uint64)
	}{
		{domain, 32, func(n uint64) { a.Domain = uint32(n) }},
		{bus, 8, func(n uint64) { a.Bus = uint8(n) }},
		{device, 5, func(n uint64) { a.Device = uint8(n) }},
		{function, 3, func(n uint64) { a.Function = uint8(n) }},
	} {
		n, err := strconv.ParseUint(f.text, 16, f.bits)
		if err != nil {
			return bad()
		}
		f.set(n)
	}
	return a, nil
}

// String returns the address in the kernel's format: lower case, the domain with at least four digits.
func (a Address) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.%d", a.Domain, a.Bus, a.Device, a.Function)
}

// Compare orders addresses by domain, bus, device and function.
func (a Address) Compare(b Address) int {
	return cmp.Compare(a.number(), b.number())
}

// number returns all parts of an address in one number, which makes a comparison a single step: placement
// compares addresses ten thousand times.
func (a Address) number() uint64 {
	return uint64(a.Domain)<<24 | uint64(a.Bus)<<16 | uint64(a.Device)<<8 | uint64(a.Function)
}

// MarshalText returns the result of String, for JSON and YAML.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads an address like ParseAddress.
func (a *Address) UnmarshalText(text []byte) error {
	parsed, err := ParseAddress(string(text))
	if err != nil {
		return err
	}
	*a = parsed
	return nil
}

// Slot returns the address with function 0, which identifies the slot of a card.
func (a Address) Slot() Address {
	a.Function = 0
	return a
}
