// SPDX-License-Identifier: Apache-2.0

package history

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
)

// Recorder records the events of one or more nodes. Methods are safe for concurrent use. A nil Recorder
// records nothing.
type Recorder struct {
	clock func() int64
	limit int

	mu     sync.Mutex
	events []Event
	lost   int
}

// New returns a recorder of at most limit events. Events beyond are counted only. The clock must never go
// back, and begins at 1 or later.
func New(limit int, clock func() int64) *Recorder { return &Recorder{clock: clock, limit: limit} }

// Steps returns a clock without time: each reading is one more than the reading before.
func Steps() func() int64 {
	var mu sync.Mutex
	now := int64(0)
	return func() int64 {
		mu.Lock()
		defer mu.Unlock()
		now++
		return now
	}
}

// ID identifies an event of a recorder; 0 identifies no event.
type ID int

// Call records the begin of an event.
func (r *Recorder) Call(e Event) ID {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) >= r.limit {
		r.lost++
		return 0
	}
	e.Call = r.clock()
	r.events = append(r.events, e)
	return ID(len(r.events))
}

// Return records the end of an event, and its result by edit. The argument edit may be nil.
func (r *Recorder) Return(id ID, edit func(*Event)) {
	r.Edit(id, func(e *Event) {
		if edit != nil {
			edit(e)
		}
		e.Return = r.clock()
	})
}

// Edit adds facts to an event.
func (r *Recorder) Edit(id ID, edit func(*Event)) {
	if r == nil || id == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	edit(&r.events[id-1])
}

// Note records an event that takes no time.
func (r *Recorder) Note(e Event) { r.Return(r.Call(e), nil) }

// History returns the events so far.
func (r *Recorder) History() History {
	if r == nil {
		return History{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return History{Events: slices.Clone(r.events), Lost: r.lost}
}

// History is a sequence of events in the order of their begin.
type History struct {
	Events []Event
	Lost   int // events beyond the recorder's limit
}

// Last returns the newest events, at most n.
func (h History) Last(n int) History { return History{Events: h.Events[max(0, len(h.Events)-n):]} }

// Write writes the events as JSON, one event per line.
func (h History) Write(w io.Writer) error {
	encoder := json.NewEncoder(w)
	for _, e := range h.Events {
		if err := encoder.Encode(e); err != nil {
			return fmt.Errorf("write history: %w", err)
		}
	}
	return nil
}
