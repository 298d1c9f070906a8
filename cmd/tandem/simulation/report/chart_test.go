// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"
)

// TestChartLegend: the legend has the line of the bound if the chart has one.
func TestChartLegend(t *testing.T) {
	t.Parallel()
	for _, bound := range []*Estimate{nil, {Mean: 50}} {
		r := Report{Node: "A", Loads: []Load{{Load: 30}, {Load: 60, Bound: bound}}}
		chart := string(r.SVG())
		if has := strings.Contains(chart, "all arrivals known ahead, %</text>"); has != (bound != nil) {
			t.Errorf("bound %v, in the legend %t:\n%s", bound, has, chart)
		}
	}
}
