// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// Range is a run of numbers of a set, both ends included.
type Range struct{ First, Last int }

// SetOf returns the set of non-negative numbers, in any order.
func SetOf(numbers ...int) Set {
	set := topology.CPUSet{}
	for _, n := range numbers {
		set[n] = true
	}
	return Set(set.String())
}

// Ranges returns the runs of the set, ascending. It returns an error if the text is not a set, or if a number
// repeats or is not below limit. Its time and memory depend only on the length of the text.
func (s Set) Ranges(limit int) ([]Range, error) {
	if s == "" {
		return nil, nil
	}
	var ranges []Range
	for part := range strings.SplitSeq(string(s), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		low, err := strconv.ParseUint(first, 10, 31)
		high, errHigh := strconv.ParseUint(last, 10, 31)
		if cmp.Or(err, errHigh) != nil || high < low {
			return nil, fmt.Errorf("parse set %.40q", s)
		}
		if int(high) >= limit {
			return nil, fmt.Errorf("parse set %.40q: %d is not below %d", s, high, limit)
		}
		ranges = append(ranges, Range{int(low), int(high)})
	}
	slices.SortFunc(ranges, func(a, b Range) int { return a.First - b.First })
	for i, r := range ranges[1:] {
		if r.First <= ranges[i].Last {
			return nil, fmt.Errorf("parse set %.40q: %d is there twice", s, r.First)
		}
	}
	return ranges, nil
}

// List returns the members of the set, ascending. Its errors are those of [Set.Ranges].
func (s Set) List(limit int) ([]int, error) {
	ranges, err := s.Ranges(limit)
	if err != nil {
		return nil, err
	}
	count := 0
	for _, r := range ranges {
		count += r.Last - r.First + 1
	}
	list := make([]int, 0, count)
	for _, r := range ranges {
		for n := r.First; n <= r.Last; n++ {
			list = append(list, n)
		}
	}
	return list, nil
}

// Numbers returns the members, ascending, or nil for an invalid set or numbers above 65,535.
func (s Set) Numbers() []int {
	list, err := s.List(1 << 16)
	if err != nil || len(list) == 0 {
		return nil
	}
	return list
}
