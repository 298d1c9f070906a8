// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

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

// holds reports whether the item includes the function with a VF index; -1 means a function other than a VF.
func (v *vfItem) holds(index int) bool {
	if v.all {
		return true
	}
	for _, r := range v.indexes {
		if r.first <= index && index <= r.last {
			return true
		}
	}
	return false
}

// naming returns the first item with the name of a PF, ignoring case (getItem, same file).
func naming(items []vfItem, pf string) (*vfItem, bool) {
	for i := range items {
		if strings.EqualFold(items[i].pf, pf) {
			return &items[i], true
		}
	}
	return nil, false
}
