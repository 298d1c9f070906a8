package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// progress tells people what goes on and how long it has taken.
type progress struct {
	mu    sync.Mutex
	out   io.Writer
	start time.Time
}

func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "[%4.0f s] %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}

// stage does one thing within a limit of time. It says so at the start, at the end, and every half minute between.
func (p *progress) stage(ctx context.Context, name string, limit time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %s", limit))
	defer cancel()
	start := time.Now()
	p.say("%s", name)
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	ticker := time.NewTicker(30 * time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			p.say("%s: %.0f s so far", name, time.Since(start).Seconds())
			continue
		case err := <-done:
			if err != nil && ctx.Err() != nil {
				err = errors.Join(context.Cause(ctx), err)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			p.say("%s: done in %.1f s", name, time.Since(start).Seconds())
			return nil
		}
	}
}

// cache is a folder with what was made before. A thing is made again when its key changes: what it is made of.
type cache struct {
	dir string
	*progress
	locked *os.File // its lock goes when it is closed, or collected as garbage
}

func (c *cache) path(elements ...string) string {
	return filepath.Join(append([]string{c.dir}, elements...)...)
}

// lock keeps the folder for this process until it ends.
func (c *cache) lock() error {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	dir, err := os.Open(c.dir)
	if err != nil {
		return err
	}
	c.locked = dir
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("%s is in use by another run: %w", c.dir, err)
	}
	return nil
}

// has reports whether a thing was made to the end under this key.
func (c *cache) has(thing, key string) bool {
	known, err := os.ReadFile(c.path(thing + ".key"))
	return err == nil && string(known) == key
}

// make makes a thing unless it is there. What broke off half-way is made again, from what it left.
func (c *cache) make(ctx context.Context, thing, key string, limit time.Duration, do func(context.Context) error) error {
	if c.has(thing, key) {
		c.say("%s: as it is in the cache", thing)
		return nil
	}
	if err := os.RemoveAll(c.path(thing + ".key")); err != nil {
		return err
	}
	if err := c.stage(ctx, thing, limit, do); err != nil {
		return err
	}
	return os.WriteFile(c.path(thing+".key"), []byte(key), 0o644)
}
