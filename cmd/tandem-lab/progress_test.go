// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"io"
	"testing"
	"time"
)

// TestProgress: without a terminal every tick is a line, and none follows the end.
func TestProgress(t *testing.T) {
	t.Parallel()
	var progress func(done, all int)
	out, in := io.Pipe()
	ticks := make(chan time.Time)
	start := time.Now()
	done := writeProgress(in, &progress, ticks)
	lines := bufio.NewScanner(out)
	for i, want := range []string{"... 20 s: no trial has ended yet", "... 40 s: 1 of 4 trials"} {
		if i == 1 {
			progress(1, 4)
		}
		ticks <- start.Add(time.Duration(i+1) * progressEvery)
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("%q, want %q", lines.Text(), want)
		}
	}
	done()
	select {
	case ticks <- time.Now():
		t.Error("a tick after the end is received")
	default:
	}
}
