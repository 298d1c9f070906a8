// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/tandem-k8s/tandem/plugins/rdma/sysfs"
	"github.com/tandem-k8s/tandem/topology"
)

var (
	pciNumber = regexp.MustCompile(`^[0-9a-f]{4}$`)         // of a vendor or device, in the format of conditions
	pKey      = regexp.MustCompile(`^0x[0-9a-f]{4}$`)       // ports/1/pkeys/0
	acpiIndex = regexp.MustCompile(`^(0|[1-9][0-9]{0,9})$`) // acpi_index
)

// impossible returns a warning for each value of a selector that no device can have. products is the key of
// the device numbers.
func (s *Selector) impossible(products string) (warnings []string) {
	for _, c := range []struct {
		key    string
		values []string
		remedy func(value string) string // "" for a possible value
	}{
		{"vendors", s.Vendors, pciNumberRemedy},
		{products, s.Devices, pciNumberRemedy},
		{"pciAddresses", s.PCIAddresses, addressRemedy},
		{"rootDevices", pfsOf(s.RootDevices), addressRemedy},
		{"acpiIndexes", s.ACPIIndexes, remedyUnless(acpiIndex, "want a number")},
		{"pKeys", s.PKeys, remedyUnless(pKey, "want a number such as 0x8001, in lower case")},
		{"linkTypes", s.LinkTypes, linkTypeRemedy},
		{"vdpaType", optional(s.VDPAType != "", s.VDPAType), vdpaRemedy},
	} {
		for _, value := range c.values {
			if remedy := c.remedy(value); remedy != "" {
				warnings = append(warnings, fmt.Sprintf("%s: no device can have the value %q: %s", c.key, value, remedy))
			}
		}
	}
	return warnings
}

func pfsOf(items []vfItem) (pfs []string) {
	for _, item := range items {
		pfs = append(pfs, item.pf)
	}
	return pfs
}

func remedyUnless(possible *regexp.Regexp, remedy string) func(string) string {
	return func(value string) string {
		if possible.MatchString(value) {
			return ""
		}
		return remedy
	}
}

func pciNumberRemedy(value string) string {
	if _, err := topology.ParseAddress(value); err == nil {
		return "an address belongs in pciAddresses"
	}
	return remedyUnless(pciNumber, "want four digits in lower case, without 0x, such as 101e")(value)
}

func addressRemedy(value string) string {
	address, err := topology.ParseAddress(value)
	switch {
	case err == nil && address.String() == value:
		return ""
	case err == nil:
		return fmt.Sprintf("want %q", address)
	case strings.Contains(value, "#"):
		return "a PF with indexes of VFs belongs in rootDevices"
	default:
		return "want a PCI address such as 0000:81:00.2"
	}
}

func linkTypeRemedy(value string) string {
	if value == "ether" || value == "infiniband" {
		return ""
	}
	return "want ether or infiniband"
}

func vdpaRemedy(value string) string {
	if _, known := sysfs.VDPADrivers[value]; known {
		return ""
	}
	return "want virtio or vhost"
}
