// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"strings"
	"testing"
)

// TestImpossibleValues: a value that no device can have is warned of when the configuration is read, with the
// value that is wanted or the key to which it belongs.
func TestImpossibleValues(t *testing.T) {
	const address = `devices: no device can have the value "0000:81:00.1": an address belongs in pciAddresses`
	for selectors, want := range map[string]string{
		`"devices": ["0000:81:00.1"]`:        address,
		`"devices": ["101E"]`:                `want four hexadecimal digits in lower case, without 0x, such as 101e`,
		`"vendors": ["0x15b3"]`:              `vendors: no device can have the value "0x15b3": want four hexadecimal digits in lower case, without 0x, such as 15b3`,
		`"pciAddresses": ["0000:81:00.0#1"]`: `belongs in rootDevices`,
		`"pciAddresses": ["0000:81:00.A"]`:   `want a PCI address such as`,
		`"pciAddresses": ["0000:8A:00.1"]`:   `want "0000:8a:00.1"`,
		`"rootDevices": ["ens1#0-3"]`:        `rootDevices: no device can have the value "ens1": want a PCI address`,
		`"linkTypes": ["ethernet"]`:          `want ether or infiniband`,
		`"pKeys": ["8001"]`:                  `want a number such as 0x8001`,
		`"acpiIndexes": ["a"]`:               `want a number`,
		`"devices": ["101e"], "vendors": ["15b3"], "pciAddresses": ["0000:81:00.1", "10000:81:00.1"],
			"rootDevices": ["0000:81:00.0#0-3"], "linkTypes": ["ether"], "pKeys": ["0x8001"],
			"acpiIndexes": ["101"]`: "",
	} {
		got := config(t, resources(`{"resourceName": "a", "selectors": {`+selectors+`}}`)).Warnings
		if text := strings.Join(got, "\n"); (text != "") != (want != "") || !strings.Contains(text, want) {
			t.Errorf("%s: warnings %q; want %q", selectors, text, want)
		}
	}
	shared := config(t, sharing(`{"resourceName": "a", "rdmaHcaMax": 1, "selectors": {"deviceIDs": ["0x101e"]}}`))
	if text := strings.Join(shared.Warnings, "\n"); !strings.Contains(text, `deviceIDs: no device can have`) {
		t.Errorf("shared: %q", text)
	}
}
