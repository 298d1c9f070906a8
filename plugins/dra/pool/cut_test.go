// SPDX-License-Identifier: Apache-2.0

package pool

import "testing"

// A slice has at most the API's number of devices, also if related devices are more.
func TestCut(t *testing.T) {
	t.Parallel()
	for name, units := range map[string][][]item{
		"one unit of more than a slice": {make([]item, 2*maxDevices+1)},
		"units that fill slices":        {make([]item, maxDevices), make([]item, maxDevices), make([]item, 1)},
		"a unit that does not fit":      {make([]item, 1), make([]item, maxDevices), make([]item, maxDevices)},
	} {
		total := 0
		slices := cutSlices(units)
		for _, items := range slices {
			total += len(items)
			if len(items) > maxDevices {
				t.Errorf("%s: a slice of %d devices", name, len(items))
			}
		}
		if total != 2*maxDevices+1 || len(slices) != 3 {
			t.Errorf("%s: %d devices in %d slices", name, total, len(slices))
		}
	}
}
