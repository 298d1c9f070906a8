// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// A person asks for the status with little patience, and the source, which works, takes 5 ms. The missing
// answer is no failure: a question of the kubelet right afterwards asks the source.
func TestHurriedCallerPausesNoSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Sources{}
		slow := func(ctx context.Context) ([]Pod, error) {
			select {
			case <-time.After(5 * time.Millisecond):
				return []Pod{{UID: "strict", Alignment: Required}}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		s.addSource(PodsAPI, slog.New(slog.DiscardHandler), slow, func() error { return nil })
		ask := func(patience time.Duration) bool {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := s.Pods(ctx)
			return err == nil
		}
		if !ask(50 * time.Millisecond) {
			t.Fatal("the source does not work")
		}
		for range 5 {
			ask(time.Millisecond) // people
		}
		if !ask(50 * time.Millisecond) { // the kubelet, at once
			now, _ := s.Enforcement()
			t.Errorf("a question goes without the source, for %v: %v", s.sources[0].untilRetry(),
				errors.New(now.String()))
		}
	})
}
