// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"

	"github.com/tandem-k8s/tandem/coordination/verdict"
)

// Each offer is better than the next one.
func TestCompareOffers(t *testing.T) {
	offers := []offer{
		{pairs: 4, stranded: 3, lost: verdict.Room{1, 1, 2, 4}, free: 9},
		{pairs: 3, stranded: 0, lost: verdict.Room{0, 0, 1, 2}, free: 1},
		{pairs: 3, stranded: 0, lost: verdict.Room{0, 0, 1, 2}, free: 2},
		{pairs: 3, stranded: 0, lost: verdict.Room{0, 1, 1, 2}, free: 1},
		{pairs: 3, stranded: 0, lost: verdict.Room{1, 0, 0, 0}, free: 1},
		{pairs: 3, stranded: 1, lost: verdict.Room{}, free: 0},
		{pairs: 0},
	}
	for i, a := range offers {
		for j, b := range offers {
			if got, want := compareOffers(a, b), j-i; got*want < 0 || (got == 0) != (want == 0) {
				t.Errorf("%+v, %+v: %d", a, b, got)
			}
		}
	}
}
