// SPDX-License-Identifier: Apache-2.0

package system

import "testing"

func TestSignal(t *testing.T) {
	var s Signal
	s.Raise() // nobody waits
	first := s.Next()
	select {
	case <-first:
		t.Error("closed before a change")
	default:
	}
	if s.Next() != first {
		t.Error("two waiters for one change have two channels")
	}
	s.Raise()
	<-first
	select {
	case <-s.Next():
		t.Error("the change before closes the next channel")
	default:
	}
}
