// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"log/slog"
	"sync"

	"github.com/tandem-k8s/tandem/cmd/internal/monitor"
	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/version"
)

// watched runs a daemon together with its Monitor and, if enabled, the sender of events.
func (f *Flags) watched(ctx context.Context, name string, log *slog.Logger, run Run) error {
	var beside sync.WaitGroup
	serving, stop := context.WithCancel(ctx)
	defer beside.Wait()
	defer stop()
	f.openEvents(name, log)
	var tell func(admission.Verdict)
	if f.sender != nil {
		tell = f.sender.Tell
		beside.Go(func() { f.sender.Run(serving) })
	}
	f.monitor = monitor.New(version.Text(), tell)
	beside.Go(func() { f.monitor.Serve(serving, f.Metrics, f.Health, log) })
	return run(ctx, log)
}

// openEvents creates the sender of events. Without the API server the daemon runs without events.
func (f *Flags) openEvents(name string, log *slog.Logger) {
	if !f.Events {
		return
	}
	sender, err := monitor.OpenEvents(monitor.EventsConfig{
		Component: name, Node: f.NodeName, Count: func(outcome string) { f.monitor.Event(outcome) }, Log: log,
	})
	if err != nil {
		log.Warn("events on pods are disabled", "error", err)
		return
	}
	f.sender = sender
}
