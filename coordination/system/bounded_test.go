// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A call that hangs is left behind, and the next ones wait for it; once it has ended they begin.
func TestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := make(Turn, 1)
		hang := make(chan struct{})
		calls := 0
		ask := func() (int, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return AwaitResult(ctx, CallInTurn(ctx, turn, func() (int, error) {
				calls++
				<-hang
				return calls, nil
			}))
		}
		if _, err := ask(); !errors.Is(err, ErrLate) || !turn.Busy() {
			t.Errorf("a call that hangs: %v", err)
		}
		began := time.Now()
		if _, err := ask(); err == nil || time.Since(began) != time.Second {
			t.Errorf("one beside it: %v after %s", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := turn.Await(ctx); !errors.Is(err, ErrBusy) {
			t.Errorf("its end: %v", err)
		}
		close(hang)
		synctest.Wait()
		if err := turn.Await(t.Context()); err != nil || turn.Busy() {
			t.Errorf("it ended: %v", err)
		}
		if n, err := ask(); n != 2 || err != nil {
			t.Errorf("call %d, %v; want the second", n, err)
		}
	})
}

// What a call returns is handed on, an answer that is there as well as the deadline included.
func TestAnswers(t *testing.T) {
	turn, broken := make(Turn, 1), errors.New("broken")
	if _, err := AwaitResult(t.Context(),
		CallInTurn(t.Context(), turn, func() (int, error) { return 0, broken })); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		results := make(chan Result[int], 1)
		results <- Result[int]{Value: 7}
		if n, err := AwaitResult(done, results); n != 7 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
}

func TestSurvive(t *testing.T) {
	t.Parallel()
	other := errors.New("other")
	for name, tc := range map[string]struct {
		work     func() error
		panicked bool
	}{
		"nothing":         {func() error { return nil }, false},
		"an error":        {func() error { return other }, false},
		"the transport's": {func() error { return status.Error(codes.Internal, "stream terminated") }, false},
		"a panic":         {func() error { panic("a mistake") }, true},
	} {
		var log bytes.Buffer
		err := Survive(slog.New(slog.NewTextHandler(&log, nil)), tc.work)
		if Panicked(err) != tc.panicked ||
			Panicked(fmt.Errorf("wrapped: %w", errors.Join(err, nil))) != tc.panicked {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(log.String(), "a mistake") != tc.panicked ||
			strings.Contains(log.String(), "bounded_test.go") != tc.panicked {
			t.Errorf("%s: log %q", name, log.String())
		}
	}
}
