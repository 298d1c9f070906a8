// SPDX-License-Identifier: Apache-2.0

package system

import "sync"

// Signal is a channel that each change closes and replaces. The zero value is ready to use. The mutex of the
// state also guards the Signal: waiters read the state and the channel together.
type Signal struct {
	next chan struct{} // nil without waiters
}

// Next returns a channel that the next Raise closes.
func (s *Signal) Next() <-chan struct{} {
	if s.next == nil {
		s.next = make(chan struct{})
	}
	return s.next
}

// Raise wakes all waiters.
func (s *Signal) Raise() {
	if s.next != nil {
		close(s.next)
	}
	s.next = nil
}

// Trigger asks for work. What is asked before the work begins counts once. Receive from a Trigger to begin.
type Trigger chan struct{}

// NewTrigger returns a Trigger that has asked for nothing.
func NewTrigger() Trigger { return make(Trigger, 1) }

// Fire asks for work, and does not wait.
func (t Trigger) Fire() {
	select {
	case t <- struct{}{}:
	default:
	}
}

// Newest holds a value of which only the newest matters. The zero value holds the zero value of T.
type Newest[T any] struct {
	mu      sync.Mutex
	value   T
	changed Signal
}

// Set replaces the value.
func (n *Newest[T]) Set(value T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.value = value
	n.changed.Raise()
}

// Get returns the value.
func (n *Newest[T]) Get() T {
	value, _ := n.Watch()
	return value
}

// Watch returns the value, and a channel that is closed when the value is no longer the newest.
func (n *Newest[T]) Watch() (T, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.value, n.changed.Next()
}
