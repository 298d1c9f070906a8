// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"log/slog"

	"github.com/tandem-k8s/tandem/coordination/history"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// report collects log records, observer events and history of a decision until the commit.
type report struct {
	notes  []note
	events []func(DecisionObserver)

	view     kubelet.Reading[kubelet.View] // of PodResources: names the containers of earlier decisions
	decision *history.Decision             // the answered question, nil for none
	handover *history.Allocation           // the answered Allocate, nil for none
	paired   bool                          // the container's pairs files are due
}

// note is a log record.
type note struct {
	level slog.Level
	text  string
	args  []any
}

func (r *report) warn(text string, args ...any) {
	r.notes = append(r.notes, note{slog.LevelWarn, text, args})
}

func (r *report) error(text string, args ...any) {
	r.notes = append(r.notes, note{slog.LevelError, text, args})
}

// observe adds an event for the observer.
func (r *report) observe(event func(DecisionObserver)) { r.events = append(r.events, event) }

// publish logs the records and sends the events.
func (r *report) publish(log *slog.Logger, to DecisionObserver) {
	for _, n := range r.notes {
		log.Log(context.Background(), n.level, n.text, n.args...)
	}
	for _, event := range r.events {
		event(to)
	}
}

// remember adds the decision to the history.
func (r *report) remember(log *history.Log) {
	if view, err := r.view.Get(); err == nil {
		log.Resolve(view)
	}
	if r.decision != nil {
		log.Add(r.decision)
	}
	if r.handover != nil {
		log.RecordAllocation(*r.handover)
	}
}
