// SPDX-License-Identifier: Apache-2.0

// Package seeds runs simulations that depend on a seed alone: it tells a run as a story, repeats a run to
// compare both, and reports a broken promise with the command that repeats the run.
package seeds

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"
)

// storyLines is the number of events that a report of a violation tells.
const storyLines = 60

// Story is the log of a run, a line for each event.
type Story struct {
	began time.Time
	lines []string
}

// Add adds an event.
func (s *Story) Add(event string) {
	now := time.Now()
	if s.began.IsZero() {
		s.began = now
	}
	s.lines = append(s.lines, fmt.Sprintf("%12.6f s  %s", now.Sub(s.began).Seconds(), event))
}

// Sum identifies the events.
func (s *Story) Sum() uint64 {
	hash := fnv.New64a()
	for _, line := range s.lines {
		fmt.Fprintln(hash, line)
	}
	return hash.Sum64()
}

// String returns the newest events.
func (s *Story) String() string { return strings.Join(s.lines[max(0, len(s.lines)-storyLines):], "\n") }

// Lines returns all events.
func (s *Story) Lines() []string { return s.lines }
