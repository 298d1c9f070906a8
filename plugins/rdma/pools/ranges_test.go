// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
