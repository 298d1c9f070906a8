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
		{"SelectorObjs", append(selectors, "selectors"), []place{besideThem}, ""}, // the operator's own
		{"comment", selectors, []place{besideThem}, ""},
		{"excludetopolgy", resource, []place{intoSelectors}, `want "excludeTopology"`},
		{"isRdma", resource, []place{intoSelectors}, "put it into selectors"},
		{"version", []string{"resourceList", "configList"}, nil, ""},
		{"resources", []string{"resourceList", "configList"}, nil, ""},
		{"resource", []string{"resourceList", "configList"}, nil, `want "resourceList"`},
	} {
		if got := meant(c.key, c.known, c.others); got != c.want {
			t.Errorf("%s: %q, want %q", c.key, got, c.want)
		}
	}
}

func TestEdits(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"ab", "ba", 2},
	} {
		if got := edits(c.a, c.b); got != c.want {
			t.Errorf("from %q to %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
