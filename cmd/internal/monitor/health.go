// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/intent"
)

// probeTimeout is how long the checks of a probe may take together; the manifests' probes wait for longer.
const probeTimeout = 2 * time.Second

// alive returns an error for each hung part that a restart would repair, or nil. An unreachable kubelet, peer
// or API server does not count.
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

// ready returns an error for each resource that has devices and is not registered with the kubelet, or nil. A
// node without devices is ready once the daemon has looked.
func (m *Monitor) ready(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var missing []error
	switch {
	case m.waits != nil:
		missing = append(missing, fmt.Errorf("nothing is offered: %w", m.waits))
	case !m.begun:
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

// details returns the additional lines of /readyz?verbose: for each resource whether the kubelet knows it,
// and whether annotations are enforced, which does not affect readiness.
func (m *Monitor) details() []string {
	m.mu.Lock()
	node := m.node
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(m.offered)) {
		state := "not registered with the kubelet"
		switch o := m.offered[name]; {
		case o.registered:
			state = "registered with the kubelet"
		case !o.due:
			state = "without devices"
		}
		lines = append(lines, name+" is "+state)
	}
	m.mu.Unlock()
	enforcer, knows := node.(Enforcer)
	if !knows {
		return lines
	}
	now, serves := enforcer.Enforcement()
	if !serves {
		return append(lines, "whether annotation "+intent.AlignmentKey+
			" is enforced knows the plugin that serves the coordination")
	}
	return append(lines, now.String())
}

func nothing() []string { return nil }

// probe answers with 200 and "ok", or with 503 and a line per error. With ?verbose, the details come first.
func probe(check func(context.Context) error, details func() []string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), probeTimeout)
		defer cancel()
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		err := check(ctx)
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		if r.URL.Query().Has("verbose") {
			for _, line := range details() {
				fmt.Fprintln(w, line)
			}
		}
		if err != nil {
			fmt.Fprintln(w, err)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}
