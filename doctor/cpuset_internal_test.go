package doctor

import "testing"

func TestCPUs(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{"": "", "0": "0", "0-3,8": "0-3,8", "8,0-1,2-3\n": "0-3,8", "5,3": "3,5"} {
		set, err := parseCPUs(list)
		if err != nil || set.String() != want {
			t.Errorf("%q: %q, %v, want %q", list, set, err, want)
		}
	}
	for _, list := range []string{"a", "3-1", "-1", "0-99999999", "1,,2"} {
		if set, err := parseCPUs(list); err == nil {
			t.Errorf("%q passes as %v", list, set)
		}
	}
	for amount, want := range map[any]int{"500m": 1, "2": 2, "1500m": 2, 1: 1, 0.5: 1, "0": 0, "many": 0} {
		if got := cores(amount); got != want {
			t.Errorf("%v are %d cores, want %d", amount, got, want)
		}
	}
}
