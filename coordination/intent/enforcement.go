// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
)

// Enforcement is the state of the enforcement of pods' annotations on this node, mainly of [AlignmentKey].
// Enforcement requires the answers of a source that lists pods with their annotations.
type Enforcement struct {
	Source Source // the source that answers; "" for none
	Why    string // reason for the lack of answers; "" for none
	// TooLarge means that the list of pods exceeds a limit: the reason remains until users delete pods.
	TooLarge bool
}

// Enforced reports whether annotations are enforced.
func (e Enforcement) Enforced() bool { return e.Source != "" }

// String returns a sentence for people.
func (e Enforcement) String() string {
	if e.Enforced() {
		return fmt.Sprintf("annotation %s is enforced on this node (source %s)", AlignmentKey, e.Source)
	}
	return fmt.Sprintf("annotation %s is not enforced on this node: %s", AlignmentKey, e.Why)
}

// enforcement is the latest Enforcement, by the last answers of the sources.
type enforcement struct {
	mu      sync.Mutex
	latest  Enforcement
	changed system.Signal
}

// update returns the Enforcement by the last answers of sources, and a channel that is closed after the next
// change.
func (e *enforcement) update(sources []*source) (Enforcement, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now := enforcementOf(sources); now != e.latest {
		e.latest = now
		e.changed.Raise()
	}
	return e.latest, e.changed.Next()
}

// enforcementOf returns the Enforcement by the last answers of sources, best first.
func enforcementOf(sources []*source) Enforcement {
	if len(sources) == 0 {
		return Enforcement{Why: fmt.Sprintf("no source of --intent reads annotations: name %s or %s there",
			PodsAPI, Kubelet)}
	}
	var failures []string
	tooLarge := false
	for _, source := range sources {
		answered, failure := source.last()
		switch {
		case answered && failure == nil:
			return Enforcement{Source: source.name}
		case answered:
			failures = append(failures, fmt.Sprintf("%s: %v", source.name, failure))
			tooLarge = tooLarge || errors.Is(failure, kubelet.ErrTooLarge)
		}
	}
	if len(failures) == 0 {
		return Enforcement{Why: "no source has answered yet"}
	}
	return Enforcement{Why: strings.Join(failures, "; "), TooLarge: tooLarge}
}
