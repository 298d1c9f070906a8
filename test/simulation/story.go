// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"
)

// storyLines is the number of events that a report of a violation tells.
const storyLines = 60

// story is the log of a run, a line for each event.
type story struct {
	began time.Time
	lines []string
}

// add adds an event.
func (s *story) add(event string) {
	now := time.Now()
	if s.began.IsZero() {
		s.began = now
	}
	s.lines = append(s.lines, fmt.Sprintf("%12.6f s  %s", now.Sub(s.began).Seconds(), event))
}

// sum identifies the events.
func (s *story) sum() uint64 {
	hash := fnv.New64a()
	for _, line := range s.lines {
		fmt.Fprintln(hash, line)
	}
	return hash.Sum64()
}

// String returns the newest events.
func (s *story) String() string { return strings.Join(s.lines[max(0, len(s.lines)-storyLines):], "\n") }

// Report is the result of a run.
type Report struct {
	Seed       uint64
	Options    Options
	Steps      int // until the end or the violation
	Admissions int
	Questions  int
	Faults     map[string]int // by kind
	Sum        uint64         // of all events
	Violation  string         // the broken promise; "" for none
	Events     []string       // in order
}

// String returns the report for people, the same for the same seed.
func (r *Report) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "seed %d, %+v: %d steps, %d admissions, %d questions, events %016x", r.Seed, r.Options,
		r.Steps, r.Admissions, r.Questions, r.Sum)
	for _, kind := range slices.Sorted(maps.Keys(r.Faults)) {
		fmt.Fprintf(&text, "\n  %6d  %s", r.Faults[kind], kind)
	}
	if r.Violation != "" {
		fmt.Fprintf(&text, "\nVIOLATION after %d steps, the shortest prefix that fails: %s\n", r.Steps, r.Violation)
		fmt.Fprintf(&text, "Repeat: go test ./test/simulation -run '^TestNode$' -admissions=1 -seed=%d\n%s", r.Seed,
			&story{lines: r.Events})
	}
	return text.String()
}
