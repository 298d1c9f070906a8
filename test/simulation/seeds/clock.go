// SPDX-License-Identifier: Apache-2.0

package seeds

import (
	"context"
	"time"
)

// Sleep waits for a time of the virtual clock.
func Sleep(d time.Duration) { <-time.After(d) }

// Pause waits, at most until ctx is done.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
