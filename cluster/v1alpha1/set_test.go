package v1alpha1

import (
	"slices"
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
