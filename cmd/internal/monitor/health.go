package monitor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"
)

// probeTimeout is how long the checks of a probe may take together; the manifests' probes wait for longer.
const probeTimeout = 2 * time.Second

// alive says what hangs, so that a restart would help; nil if nothing does. A kubelet, a peer or an API
// server that is away is no reason.
func (m *Monitor) alive(ctx context.Context) error {
	m.mu.Lock()
	var checks []func(context.Context) error
	if m.node != nil {
		checks = append(checks, m.node.Alive)
	}
	for _, o := range m.offered {
		if o.alive != nil {
			checks = append(checks, o.alive)
		}
	}
	m.mu.Unlock()
	answers := make(chan error, len(checks))
	for _, check := range checks {
		go func() { answers <- check(ctx) }()
	}
	var failed []error
	for range checks {
		failed = append(failed, <-answers)
	}
	return errors.Join(failed...)
}

// ready says which resource the kubelet does not know although it is to; nil where there is none. One without
// devices is not registered, so that a node that has nothing to offer is ready, once that is known.
func (m *Monitor) ready(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var missing []error
	if !m.begun {
		missing = append(missing, errors.New("starting: what there is to offer is not known yet"))
	}
	for _, name := range slices.Sorted(maps.Keys(m.offered)) {
		switch o := m.offered[name]; {
		case !o.due || o.registered:
		case o.cause != nil:
			missing = append(missing, fmt.Errorf("%s is not registered with the kubelet: %w", name, o.cause))
		default:
			missing = append(missing, fmt.Errorf("%s is not registered with the kubelet", name))
		}
	}
	return errors.Join(missing...)
}

// probe answers with 200 and "ok", or with 503 and a line for everything that is wrong.
func probe(check func(context.Context) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), probeTimeout)
		defer cancel()
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if err := check(ctx); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, err)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}
