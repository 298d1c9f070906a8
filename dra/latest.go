// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"log/slog"
	"sync"
)

// latest holds a value of which only the current one matters.
type latest[T any] struct {
	mu      sync.Mutex
	value   T
	changed chan struct{} // closed and replaced with every value
}

func newLatest[T any](value T) *latest[T] {
	return &latest[T]{value: value, changed: make(chan struct{})}
}

func (l *latest[T]) set(value T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.value = value
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *latest[T]) get() T {
	value, _ := l.watch()
	return value
}

// watch returns the value, and a channel that is closed when it is no longer current.
func (l *latest[T]) watch() (T, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.value, l.changed
}

// signal is a request for work. Requests that arrive before the work begins count as one.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// complaints logs the errors of continuous activities, each error once.
type complaints struct {
	log *slog.Logger

	mu   sync.Mutex
	last map[string]string // error by consequence
}

func newComplaints(log *slog.Logger) *complaints {
	return &complaints{log: log, last: map[string]string{}}
}

// complain logs an error with its consequence, unless it is the last error with this consequence.
func (c *complaints) complain(consequence string, err error) {
	if c.isNew(consequence, err) {
		c.log.Warn(consequence, "error", err)
	}
}

func (c *complaints) isNew(consequence string, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last[consequence] == err.Error() {
		return false
	}
	c.last[consequence] = err.Error()
	return true
}
