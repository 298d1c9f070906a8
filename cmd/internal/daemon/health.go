// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/coordination/intent"
)

// probeTimeout is how long the checks of a probe may take together; the manifests' probes wait for longer.
const probeTimeout = 2 * time.Second

// checkAlive returns an error for each hung part that a restart would repair, or nil. An unreachable kubelet,
// peer or API server does not count.
func (m *monitor) checkAlive(ctx context.Context) error {
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

// checkReady returns an error for each resource that has devices and is not registered with the kubelet, or
// nil. A node without devices is ready once the daemon has looked.
func (m *monitor) checkReady(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var missing []error
	if m.lacks != nil {
		missing = append(missing, m.lacks)
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

// probeDetails returns the additional lines of /readyz?verbose: for each resource whether the kubelet knows
// it, and a remark and whether annotations are enforced, which do not affect readiness.
func (m *monitor) probeDetails() []string {
	m.mu.Lock()
	node := m.node
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(m.offered)) {
		text := "not registered with the kubelet"
		switch o := m.offered[name]; {
		case o.registered:
			text = "registered with the kubelet"
		case !o.due:
			text = "without devices"
		}
		lines = append(lines, name+" is "+text)
	}
	remark := m.remark
	m.mu.Unlock()
	if remark != nil {
		if line := remark(); line != "" {
			lines = append(lines, line)
		}
	}
	enforcer, knows := node.(enforcer)
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

func noDetails() []string { return nil }

// newProbe answers with 200 and "ok", or with 503 and a line per error. With ?verbose, the details come
// first.
func newProbe(check func(context.Context) error, details func() []string) http.HandlerFunc {
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

// probe is a probe of a daemon: liveness or readiness.
type probe string

// Probes; noProbe is the zero value.
const (
	noProbe probe = ""
	alive   probe = "healthz"
	ready   probe = "readyz"
)

// askProbe queries the probe of a daemon that serves probes at an address. The result is nil if the daemon
// passes, else the daemon's reasons.
func askProbe(ctx context.Context, at address, what probe) error {
	network, address := at.splitNetwork()
	if address == "" {
		return fmt.Errorf("ask for /%s: nothing is served, give --health-probe-bind-address too", what)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*probeTimeout)
	defer cancel()
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://daemon/"+string(what), nil)
	if err != nil {
		return fmt.Errorf("ask for /%s: %w", what, err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return fmt.Errorf("ask for /%s: %w", what, err)
	}
	defer response.Body.Close()
	said, err := io.ReadAll(io.LimitReader(response.Body, maxHeader))
	if err != nil {
		return fmt.Errorf("read /%s: %w", what, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/%s: %s", what, strings.TrimSpace(string(said)))
	}
	return nil
}
