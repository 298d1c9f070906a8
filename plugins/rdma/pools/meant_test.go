// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"reflect"
	"testing"
)

// What is misspelt, is in another place or is another plugin's word is named; what is like nothing is not.
func TestMeant(t *testing.T) {
	selectors := keysOf(reflect.TypeFor[Selector]())
	resource := keysOf(reflect.TypeFor[ResourceConfig]())
	for _, c := range []struct {
		key    string
		known  []string
		others []place
		want   string
	}{
		{"vendros", selectors, []place{besideThem}, `want "vendors"`},
		{"PFName", selectors, []place{besideThem}, `want "pfNames"`},
		{"pciAddress", selectors, nil, `want "pciAddresses"`},
		{"isRDAM", selectors, nil, `want "isRdma"`},
		{"deviceIDs", selectors, []place{besideThem}, `want "devices"`},
		{"ifNames", selectors, []place{besideThem}, `want "pfNames"`},
		{"excludeTopology", selectors, []place{besideThem}, "put it beside selectors, not into it"},
		{"comment", selectors, []place{besideThem}, ""},
		{"excludetopolgy", resource, []place{intoSelectors}, `want "excludeTopology"`},
		{"isRdma", resource, []place{intoSelectors}, "put it into selectors"},
		{"version", []string{"resourceList", "configList"}, nil, ""},
		{"resources", []string{"resourceList", "configList"}, nil, ""},
		{"resource", []string{"resourceList", "configList"}, nil, `want "resourceList"`},
	} {
		if got := meantKey(c.key, c.known, c.others); got != c.want {
			t.Errorf("%s: %q, want %q", c.key, got, c.want)
		}
	}
}
