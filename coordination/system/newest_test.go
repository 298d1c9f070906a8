// SPDX-License-Identifier: Apache-2.0

package system

import (
	"errors"
	"testing"
)

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

func TestNewest(t *testing.T) {
	var n Newest[int]
	first, changed := n.Watch()
	n.Set(7)
	<-changed
	if first != 0 || n.Get() != 7 {
		t.Errorf("%d, then %d", first, n.Get())
	}
	select {
	case <-func() <-chan struct{} { _, next := n.Watch(); return next }():
		t.Error("the value is still the newest")
	default:
	}
}

func TestComplaint(t *testing.T) {
	var c Complaint
	for i, attempt := range []struct {
		err  string
		want bool
	}{{"", false}, {"full", true}, {"full", false}, {"gone", true}, {"", false}, {"gone", true}} {
		var err error
		if attempt.err != "" {
			err = errors.New(attempt.err)
		}
		if got := c.IsNew(err); got != attempt.want {
			t.Errorf("attempt %d, %q: new %v", i, attempt.err, got)
		}
	}
}
