package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/events"
	"github.com/tandem-k8s/tandem/cmd/internal/monitor"
	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/version"
)

// registerWatch adds the flags that say how the daemon can be watched. None of the stock plugins can be: the
// names are those of controller-runtime.
func (f *Flags) registerWatch(set *pflag.FlagSet) {
	set.TextVar(&f.Metrics, "metrics-bind-address", monitor.Address(""),
		"where to serve /metrics to Prometheus, HOST:PORT or :PORT; empty for nowhere")
	set.TextVar(&f.Health, "health-probe-bind-address", monitor.Address(""),
		"where to serve /healthz (nothing hangs) and /readyz (the kubelet knows all that is offered); "+
			"HOST:PORT, :PORT or unix:PATH; can be the same; empty for nowhere")
}

// watched runs a daemon with its Monitor beside it and, where the API server is a source of intent, what
// sends events to it.
func (f *Flags) watched(ctx context.Context, name string, log *slog.Logger, run Run) error {
	var beside sync.WaitGroup
	serving, stop := context.WithCancel(ctx)
	defer beside.Wait()
	defer stop()
	var tell func(admission.Verdict)
	if f.Intent.Has(intent.APIServer) {
		sender, err := events.Open(events.Config{
			Component: name, Node: f.NodeName, Count: func(outcome string) { f.monitor.Event(outcome) }, Log: log,
		})
		if err != nil {
			return fmt.Errorf("--intent=%s: %w", intent.APIServer, err)
		}
		tell = sender.Tell
		beside.Go(func() { sender.Run(serving) })
	}
	f.monitor = monitor.New(version.Text(), tell)
	beside.Go(func() { f.monitor.Serve(serving, f.Metrics, f.Health, log) })
	return run(ctx, log)
}
