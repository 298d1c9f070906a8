// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"testing"
)

func TestEstimate(t *testing.T) {
	nan := math.NaN()
	if e := Mean([]float64{nan, nan}); e != nil {
		t.Errorf("nothing: %v", e)
	}
	if e := Mean([]float64{3, nan}); e.Mean != 3 || e.CI != nil {
		t.Errorf("one: %v", e)
	}
	if e := Mean([]float64{1, 2, 3, 4, 5}); e.Mean != 3 || math.Abs(*e.CI-1.963) > 0.002 { // t(4) = 2.776
		t.Errorf("five: %v ± %v", e.Mean, *e.CI)
	}
	for freedom, want := range map[int]float64{3: 3.182, 10: 2.228, 149: 1.976} {
		if got := student(freedom); math.Abs(got-want) > 0.01 {
			t.Errorf("t(%d) = %.3f, want %.3f", freedom, got, want)
		}
	}
}
