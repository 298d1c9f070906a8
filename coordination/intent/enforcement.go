// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"fmt"
	"strings"
	"sync"
)

// Enforcement says whether the annotations of pods are enforced on this node, above all [AlignmentKey]: a
// source that lists pods with their annotations has to answer.
type Enforcement struct {
	Source Source // that answers; "" while none does
	Why    string // none does; "" while one does
}

// Enforced reports whether annotations are enforced.
func (e Enforcement) Enforced() bool { return e.Source != "" }

// String is for people.
func (e Enforcement) String() string {
	if e.Enforced() {
		return fmt.Sprintf("annotation %s is enforced on this node (source %s)", AlignmentKey, e.Source)
	}
	return fmt.Sprintf("annotation %s is not enforced on this node: %s", AlignmentKey, e.Why)
}

// enforcement is the newest Enforcement, a copy of what the sources answered last.
type enforcement struct {
	mu      sync.Mutex
	now     Enforcement
	changed chan struct{} // closed on the next one; nil where nobody waits
}

// Enforcement returns what the last answers of the sources say, and a channel that is closed once that is
// another. While Run runs, that is no older than a minute.
func (s *Sources) Enforcement() (Enforcement, <-chan struct{}) {
	now := s.lastAnswers()
	e := &s.enforcement
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.changed == nil {
		e.now, e.changed = now, make(chan struct{})
	}
	return e.now, e.changed
}

// judge takes note of the last answers.
func (s *Sources) judge() {
	now := s.lastAnswers()
	e := &s.enforcement
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.changed != nil && e.now != now {
		close(e.changed)
		e.changed = nil
	}
}

// lastAnswers reads the sources, best first.
func (s *Sources) lastAnswers() Enforcement {
	if len(s.sources) == 0 {
		return Enforcement{Why: fmt.Sprintf("no source of --intent reads annotations: name %s, %s or %s there",
			PodsAPI, Kubelet, APIServer)}
	}
	var failures []string
	for _, source := range s.sources {
		answered, failure := source.last()
		switch {
		case answered && failure == nil:
			return Enforcement{Source: source.name}
		case answered:
			failures = append(failures, fmt.Sprintf("%s: %v", source.name, failure))
		}
	}
	if len(failures) == 0 {
		return Enforcement{Why: "no source has answered yet"}
	}
	return Enforcement{Why: strings.Join(failures, "; ")}
}

// last is what came of the last question to a source.
func (s *source) last() (answered bool, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answered, s.failure
}
