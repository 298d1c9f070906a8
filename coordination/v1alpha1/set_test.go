// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"
	"strings"
	"testing"
)

func TestSet(t *testing.T) {
	for text, numbers := range map[Set][]int{
		"": nil, "0": {0}, "0-3,8": {8, 0, 1, 2, 3}, "1,3,5-6": {1, 3, 5, 6},
	} {
		if got := SetOf(numbers...); got != text {
			t.Errorf("%v is %q, want %q", numbers, got, text)
		}
		if got := text.Numbers(); !slices.Equal(got, slices.Sorted(slices.Values(numbers))) {
			t.Errorf("%q is %v", text, got)
		}
	}
	if got := Set("3-1").Numbers(); got != nil {
		t.Errorf("a range that goes down is %v", got)
	}
}

// Parsing a set takes time and memory in proportion to its text, whatever the content.
func TestRanges(t *testing.T) {
	t.Parallel()
	for text, want := range map[Set][]Range{
		"": nil, "0-9999": {{0, 9999}}, "7,1-3": {{1, 3}, {7, 7}},
	} {
		if got, err := text.Ranges(10_000); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
	for _, text := range []Set{
		"0-10000", "0-9999999999999999999999", "0-3,2", "1,1", "-1", "+1", "1_0", "3-1", "1-", ",", "0x1",
		Set(strings.Repeat("0-9999,", 100_000) + "0"),
	} {
		if got, err := text.Ranges(10_000); err == nil {
			t.Errorf("%.20q is %v", text, got)
		} else if len(err.Error()) > 100 {
			t.Errorf("%.20q: the error has %d characters", text, len(err.Error()))
		}
	}
	if list, err := Set("0-9999").List(10_000); err != nil || len(list) != 10_000 || cap(list) != 10_000 {
		t.Errorf("%d of %d, %v", len(list), cap(list), err)
	}
}
