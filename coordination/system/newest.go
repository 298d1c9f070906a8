// SPDX-License-Identifier: Apache-2.0

package system

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
