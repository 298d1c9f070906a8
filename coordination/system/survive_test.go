// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

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
			strings.Contains(log.String(), "survive_test.go") != tc.panicked {
			t.Errorf("%s: log %q", name, log.String())
		}
	}
}
