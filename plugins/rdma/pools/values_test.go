// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func held(v vfItem) []int {
	var held []int
	for i := -1; i < 20; i++ {
		if v.hasIndex(i) {
			held = append(held, i)
		}
	}
	return held
}

func TestVFItem(t *testing.T) {
	for _, c := range []struct {
		text    string
		want    []int
		problem bool
	}{
		{"ens1#0", []int{0}, false},
		{"ens1#0-3", []int{0, 1, 2, 3}, false},
		{"ens1#0-3,7", []int{0, 1, 2, 3, 7}, false},
		{"ens1#7,0-1", []int{0, 1, 7}, false},
		{"ens1#3-3", []int{3}, false},
		{"ens1#0-1,1-2", []int{0, 1, 2}, false},
		{"ens1#18-400", []int{18, 19}, false},
		// The part before a mistake counts; a range the wrong way round is no reason to stop.
		{"ens1#7-3", nil, true},
		{"ens1#7-3,1", []int{1}, true},
		{"ens1#2,x,5", []int{2}, true},
		{"ens1#", nil, true},
		{"ens1#1,,2", []int{1}, true},
		{"ens1#-1", nil, true},
		{"ens1#1-2-3", nil, true},
		{"ens1# 1", nil, true},
		{"ens1#1#2", nil, true},
		{"ens1#99999999999999999999", nil, true},
	} {
		v := parseVFItem(c.text)
		if diff := cmp.Diff(c.want, held(v)); diff != "" {
			t.Errorf("%s: %s", c.text, diff)
		}
		if (v.problem != nil) != c.problem {
			t.Errorf("%s: problem %v", c.text, v.problem)
		}
	}
	if all := parseVFItem("ens1"); !all.hasIndex(-1) || !all.hasIndex(255) || all.problem != nil {
		t.Errorf("an item without # does not take every function: %+v", all)
	}
}

func TestNaming(t *testing.T) {
	items := []vfItem{parseVFItem("ENS1#0"), parseVFItem("ens2#1"), parseVFItem("ens1#2-5")}
	item, ok := findItem(items, "ens1")
	if !ok || item.text != "ENS1#0" {
		t.Errorf("found %+v, %t; want the first item with the name, whatever its case", item, ok)
	}
	if _, ok := findItem(items, "ens3"); ok {
		t.Error("found an item for a PF that none names")
	}
}

// stock is isSelected of the stock plugin in words of our own: which indexes an item takes.
func stock(text string, index int) bool {
	parts := strings.Split(text, "#")
	if len(parts) == 1 {
		return true
	}
	if len(parts) > 2 {
		return false
	}
	for entry := range strings.SplitSeq(parts[1], ",") {
		ends := strings.Split(entry, "-")
		first, err := strconv.Atoi(ends[0])
		if err != nil || len(ends) > 2 {
			return false
		}
		last, err := strconv.Atoi(ends[len(ends)-1])
		if err != nil {
			return false
		}
		if first <= index && index <= last {
			return true
		}
	}
	return false
}

func FuzzVFItem(f *testing.F) {
	for _, seed := range []string{"a", "a#0-3,7", "a#7-3", "#", "a#1,x", "a#1-2-3", "a#+1"} {
		f.Add(seed, 1)
	}
	f.Fuzz(func(t *testing.T, text string, index int) {
		if index < 0 || index > 1<<16 {
			return
		}
		v := parseVFItem(text)
		if got, want := v.hasIndex(index), stock(text, index); got != want {
			t.Errorf("%q takes VF %d: %t; the stock plugin says %t", text, index, got, want)
		}
	})
}

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
