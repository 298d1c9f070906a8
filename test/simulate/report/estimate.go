// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
)

// Estimate is a mean over seeds with half the width of its 95 % confidence interval.
type Estimate struct {
	Mean float64  `json:"mean"`
	CI   *float64 `json:"ci"` // null for a single seed
}

// Mean returns the mean over the seeds without NaN, or nil if there are none.
func Mean(values []float64) *Estimate {
	n, sum := 0, 0.0
	for _, v := range values {
		if !math.IsNaN(v) {
			n++
			sum += v
		}
	}
	if n == 0 {
		return nil
	}
	e := &Estimate{Mean: sum / float64(n)}
	if n == 1 {
		return e
	}
	squares := 0.0
	for _, v := range values {
		if !math.IsNaN(v) {
			squares += (v - e.Mean) * (v - e.Mean)
		}
	}
	ci := student(n-1) * math.Sqrt(squares/float64(n-1)/float64(n))
	e.CI = &ci
	return e
}

// String formats the estimate with the significant digits of its interval, "-" for nil.
func (e *Estimate) String() string {
	switch {
	case e == nil:
		return "-"
	case e.CI == nil:
		return fmt.Sprintf("%.1f", e.Mean)
	case *e.CI < 0.05 && e.Mean < 10 && e.Mean > 0:
		return fmt.Sprintf("%.2f ±%.2f", e.Mean, *e.CI)
	default:
		return fmt.Sprintf("%.1f ±%.1f", e.Mean, *e.CI)
	}
}

// student returns the 97.5 % quantile of Student's t distribution: from a table for few degrees of freedom,
// else by the series of Cornish and Fisher, to three digits.
func student(freedom int) float64 {
	if table := [...]float64{12.706, 4.303, 3.182, 2.776}; freedom <= len(table) {
		return table[freedom-1]
	}
	const z = 1.959964
	n := float64(freedom)
	z3, z5, z7 := z*z*z, z*z*z*z*z, z*z*z*z*z*z*z
	return z + (z3+z)/(4*n) + (5*z5+16*z3+3*z)/(96*n*n) + (3*z7+19*z5+17*z3-15*z)/(384*n*n*n)
}
