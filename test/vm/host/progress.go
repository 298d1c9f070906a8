// SPDX-License-Identifier: Apache-2.0

// Package host has the test's activities on the host: commands, services, and stages with time limits and
// progress messages.
package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Progress prints messages with the elapsed time. It is safe for concurrent use.
type Progress struct {
	mu    sync.Mutex
	out   io.Writer
	start time.Time
}

// NewProgress counts from now.
func NewProgress(out io.Writer) *Progress { return &Progress{out: out, start: time.Now()} }

// Say prints a line.
func (p *Progress) Say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "[%4.0f s] %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}

// Stage runs do within a time limit. It prints a message at the start, at the end, and every half minute.
func (p *Progress) Stage(
	ctx context.Context, name string, limit time.Duration, do func(context.Context) error,
) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %s", limit))
	defer cancel()
	start := time.Now()
	p.Say("%s", name)
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	ticker := time.NewTicker(30 * time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			p.Say("%s: %.0f s so far", name, time.Since(start).Seconds())
			continue
		case err := <-done:
			if err != nil && ctx.Err() != nil {
				err = errors.Join(context.Cause(ctx), err)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			p.Say("%s: done in %.1f s", name, time.Since(start).Seconds())
			return nil
		}
	}
}
