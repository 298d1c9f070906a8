// SPDX-License-Identifier: Apache-2.0

// Package changes tells waiters that a state is no longer the newest.
package changes

// Signal is a channel that each change closes and replaces. The zero value is ready for use. The lock of the
// state guards the Signal too, so that a waiter gets a state and the end of that state in one step.
type Signal struct {
	next chan struct{} // nil while nobody waits
}

// Next returns a channel that the next Raise closes.
func (s *Signal) Next() <-chan struct{} {
	if s.next == nil {
		s.next = make(chan struct{})
	}
	return s.next
}

// Raise wakes all who wait for a change.
func (s *Signal) Raise() {
	if s.next != nil {
		close(s.next)
	}
	s.next = nil
}
