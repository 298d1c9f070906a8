// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/spelling"
	"github.com/tandem-k8s/tandem/topology"
)

var (
	pciNumber = regexp.MustCompile(`^[0-9a-f]{4}$`)         // of a vendor or device, in the format of conditions
	pKey      = regexp.MustCompile(`^0x[0-9a-f]{4}$`)       // ports/1/pkeys/0
	acpiIndex = regexp.MustCompile(`^(0|[1-9][0-9]{0,9})$`) // acpi_index
	linkType  = regexp.MustCompile(`^(ether|infiniband)$`)  // the values of linkTypes
	vdpaType  = regexp.MustCompile(`^(virtio|vhost)$`)      // the keys of vdpaDrivers
)

// findImpossible returns a warning for each value of a selector that no device can have. products is the key
// of the device numbers.
func (s *Selector) findImpossible(products string) (warnings []string) {
	for _, c := range []struct {
		key    string
		values []string
		remedy func(value string) string // "" for a possible value
	}{
		{"vendors", s.Vendors, pciNumberRemedy("15b3")},
		{products, s.Devices, pciNumberRemedy("101e")},
		{"pciAddresses", s.PCIAddresses, addressRemedy},
		{"rootDevices", pfsOf(s.RootDevices), addressRemedy},
		{"acpiIndexes", s.ACPIIndexes, remedyUnless(acpiIndex, "want a number")},
		{"pKeys", s.PKeys, remedyUnless(pKey, "want a number such as 0x8001, in lower case")},
		{"linkTypes", s.LinkTypes, remedyUnless(linkType, "want ether or infiniband")},
		{"vdpaType", oneIf(s.VDPAType != "", s.VDPAType), remedyUnless(vdpaType, "want virtio or vhost")},
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

func pciNumberRemedy(example string) func(string) string {
	return func(value string) string {
		if _, err := topology.ParseAddress(value); err == nil {
			return "an address belongs in pciAddresses"
		}
		const format = "want four hexadecimal digits in lower case, without 0x, such as "
		return remedyUnless(pciNumber, format+example)(value)
	}
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

// nicDrivers are drivers of NICs and of functions for virtual machines, besides those of the machine.
var nicDrivers = []string{
	"mlx5_core", "mlx4_core", "bnxt_en", "ionic", "efa", "mana", "ice", "iavf", "i40e", "idpf", "ixgbe",
	"ixgbevf", "igb", "igbvf", "e1000e", "qede", "cxgb4", "hns3", "virtio-pci", "vfio-pci",
	"uio_pci_generic", "igb_uio",
}

// questionDrivers returns the drivers of a selector, each unknown one with the nearest known name, and those
// with such a name alone.
func (m *machine) questionDrivers(wanted []string) (texts, misspelt []string) {
	known := slices.Clone(nicDrivers)
	for d := range m.tree.Devices() {
		if d.IsNIC() && d.Driver != "" {
			known = append(known, d.Driver)
		}
	}
	for _, driver := range wanted {
		text := driver
		if !slices.Contains(known, driver) {
			text += spelling.Question(driver, known)
		}
		texts = append(texts, text)
		if text != driver {
			misspelt = append(misspelt, text)
		}
	}
	return texts, misspelt
}

// vfItem is an item of the selectors pfNames and rootDevices: "ens1f0" for every function of a PF,
// "ens1f0#0-3,7" for the VFs with these indexes, inclusive. Parsing never fails: as in the stock plugin
// (isSelected in pkg/resources/deviceSelectors.go) the part before a mistake counts, and problem describes
// the mistake.
type vfItem struct {
	text    string
	pf      string
	all     bool
	indexes []indexRange
	problem error
}

type indexRange struct{ first, last int }

// UnmarshalText parses an item. It returns no error: a syntax error is in the field problem.
func (v *vfItem) UnmarshalText(text []byte) error {
	*v = parseVFItem(string(text))
	return nil
}

func parseVFItem(text string) vfItem {
	v := vfItem{text: text}
	pf, list, found := strings.Cut(text, "#")
	v.pf, v.all = pf, !found
	if strings.Contains(list, "#") {
		v.problem = errors.New("more than one #")
	} else if found {
		v.indexes, v.problem = parseIndexes(list)
	}
	if pf == "" {
		v.problem = errors.New("no PF before #")
	}
	return v
}

// parseIndexes reads "0-3,7" up to the first mistake.
func parseIndexes(list string) (ranges []indexRange, problem error) {
	for part := range strings.SplitSeq(list, ",") {
		r, err := parseRange(part)
		if err != nil {
			return ranges, err
		}
		if r.last < r.first && problem == nil {
			problem = fmt.Errorf("range %q is empty", part)
		}
		ranges = append(ranges, r)
	}
	return ranges, problem
}

func parseRange(text string) (indexRange, error) {
	low, high, isRange := strings.Cut(text, "-")
	first, err := strconv.Atoi(low)
	last := first
	if err == nil && isRange {
		last, err = strconv.Atoi(high)
	}
	if err != nil || first < 0 || last < 0 {
		return indexRange{}, fmt.Errorf("%q is neither a VF index nor a range such as 0-3", text)
	}
	return indexRange{first, last}, nil
}

// hasIndex reports whether the item includes the function with a VF index; -1 means a function other
// than a VF.
func (v *vfItem) hasIndex(index int) bool {
	return v.all || slices.ContainsFunc(v.indexes, func(r indexRange) bool {
		return r.first <= index && index <= r.last
	})
}

// findItem returns the first item with the name of a PF, ignoring case (getItem, same file).
func findItem(items []vfItem, pf string) (*vfItem, bool) {
	for i := range items {
		if strings.EqualFold(items[i].pf, pf) {
			return &items[i], true
		}
	}
	return nil, false
}
