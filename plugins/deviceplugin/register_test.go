// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	var b backoff
	wait := func(lasted time.Duration, want time.Duration) {
		t.Helper()
		if got := b.next(lasted); got < want || got > want*5/4 {
			t.Errorf("wait %s after %s, want %s", got, lasted, want)
		}
	}
	for _, want := range []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000} {
		// What two instances that take turns see of each other: no session is stable.
		wait(longestPause, want*time.Millisecond)
	}
	wait(stableAfter, firstPause)
	wait(0, 2*firstPause)
}
