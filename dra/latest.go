// SPDX-License-Identifier: Apache-2.0

package dra

import "sync"

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
