package doctor

import "testing"

func TestCores(t *testing.T) {
	t.Parallel()
	for amount, want := range map[any]int{"500m": 1, "2": 2, "1500m": 2, 1: 1, 0.5: 1, "0": 0, "many": 0} {
		if got := cores(amount); got != want {
			t.Errorf("%v are %d cores, want %d", amount, got, want)
		}
	}
}
