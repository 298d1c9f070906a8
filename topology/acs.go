// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/tandem-k8s/tandem/topology/capability"
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

// capabilities are the extended capabilities of a function that matter to placement.
type capabilities struct {
	acs     ACS
	control uint16 // of ACS
	ats     bool
}

// readCapabilities reads a function's file config. A root port or downstream port decides about the upstream
// traffic through the port.
func readCapabilities(sys fs.FS, function Address) (capabilities, error) {
	config, err := sys.Open(path.Join(PCIDevices, function.String(), "config"))
	if err != nil {
		return capabilities{}, fmt.Errorf("read config of %s: %w", function, err)
	}
	defer func() { _ = config.Close() }() // opened for reading
	at, ok := config.(io.ReaderAt)
	if !ok {
		return capabilities{}, fmt.Errorf("read config of %s: %T cannot be read from the middle", function, config)
	}
	c, known := capability.ReadConfig(at)
	switch {
	case !known:
		return capabilities{}, nil
	case c.Control&(ACSRequests|ACSCompletions) != 0:
		return capabilities{ACSRedirect, c.Control, c.ATS}, nil
	default:
		return capabilities{ACSOff, c.Control, c.ATS}, nil
	}
}
