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
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/intent"
)

// probeTimeout is how long the checks of a probe may take together; the manifests' probes wait for longer.
const probeTimeout = 2 * time.Second

// status is the state of the daemon behind the probes.
type status struct {
	mu      sync.Mutex
	node    node              // nil while the daemon takes no part
	offered map[string]*offer // by resource name
	begun   bool              // the daemon has looked for its devices
	waits   error             // reason for which the daemon waits for its devices; nil for none
	lacks   error             // reason for which a part of the devices is not offered; nil for none
	remark  func() string     // further line of details, "" for none; nil without
}

// offer is a resource that the daemon offers to the kubelet.
type offer struct {
	alive      func(context.Context) error // nil before its server exists
	due        bool                        // the resource has devices, so the kubelet must know it
	registered bool
	cause      error // of the loss of the registration; nil for none
}

func (s *status) setNode(node node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node = node
}

// changeOffer changes the offer of a resource, and adds it if necessary.
func (s *status) changeOffer(name string, change func(*offer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.offered[name] == nil {
		s.offered[name] = &offer{}
	}
	change(s.offered[name])
}

// checkAlive returns an error for each hung part that a restart would repair, or nil. An unreachable kubelet,
// peer or API server does not count.
func (s *status) checkAlive(ctx context.Context) error {
	s.mu.Lock()
	var checks []func(context.Context) error
	if s.node != nil {
		checks = append(checks, s.node.Alive)
	}
	for _, o := range s.offered {
		if o.alive != nil {
			checks = append(checks, o.alive)
		}
	}
	s.mu.Unlock()
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
func (s *status) checkReady(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var missing []error
	switch {
	case s.waits != nil:
		missing = append(missing, fmt.Errorf("nothing is offered: %w", s.waits))
	case !s.begun:
		missing = append(missing, errors.New("starting: what there is to offer is not known yet"))
	case s.lacks != nil:
		missing = append(missing, s.lacks)
	}
	for _, name := range slices.Sorted(maps.Keys(s.offered)) {
		switch o := s.offered[name]; {
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
func (s *status) probeDetails() []string {
	s.mu.Lock()
	node := s.node
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(s.offered)) {
		text := "not registered with the kubelet"
		switch o := s.offered[name]; {
		case o.registered:
			text = "registered with the kubelet"
		case !o.due:
			text = "without devices"
		}
		lines = append(lines, name+" is "+text)
	}
	remark := s.remark
	s.mu.Unlock()
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
