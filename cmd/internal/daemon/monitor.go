// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/intent"
)

// monitor watches one daemon, as observer of its Node and Servers.
type monitor struct {
	registry *prometheus.Registry
	counts   counts
	verdict  func(admission.Verdict) // called for every Allocate, returns at once; may be nil

	mu      sync.Mutex
	node    node              // nil while the daemon takes no part
	offered map[string]*offer // by resource name
	lacks   error             // reason for which not all devices are offered; nil for none
	remark  func() string     // further line of details, "" for none; nil without
}

// offer is a resource that the daemon offers to the kubelet.
type offer struct {
	alive      func(context.Context) error // nil before its server exists
	due        bool                        // the resource has devices, so the kubelet must know it
	registered bool
	cause      error // of the loss of the registration; nil for none
}

// node is a coordination.Node.
type node interface {
	Role() coordination.Role
	Resources() []*api.Resource
	Alive(context.Context) error
}

// enforcer is a Node that reports whether the annotations of pods are enforced; serves is false if another
// node serves.
type enforcer interface {
	Enforcement() (now intent.Enforcement, serves bool)
}

// newMonitor returns a monitor for a daemon of a version.
func newMonitor(version string) *monitor {
	registry := prometheus.NewRegistry()
	m := &monitor{
		registry: registry, counts: newCounts(registry), offered: map[string]*offer{},
		lacks: errors.New("starting: what there is to offer is not known yet"),
	}
	m.counts.build.WithLabelValues(version).Set(1)
	m.registry.MustRegister(state{m}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Node sets the watched Node, until done is called.
func (m *monitor) Node(node node) (done func()) {
	m.setNode(node)
	return func() { m.setNode(nil) }
}

func (m *monitor) setNode(node node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.node = node
}

// changeOffer changes the offer of a resource, and adds it if necessary.
func (m *monitor) changeOffer(name string, change func(*offer)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.offered[name] == nil {
		m.offered[name] = &offer{}
	}
	change(m.offered[name])
}

// Wait sets the reason for which the daemon waits before it can look for devices. The daemon is not ready
// until Begin.
func (m *monitor) Wait(reason error) { m.Lack(fmt.Errorf("nothing is offered: %w", reason)) }

// Lack sets the reason for which the daemon offers only a part of its devices; nil for none. The daemon is
// not ready until Begin.
func (m *monitor) Lack(reason error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lacks = reason
}

// Remark sets the source of a line for /readyz?verbose that does not affect readiness, "" for none.
func (m *monitor) Remark(remark func() string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remark = remark
}

// Begin reports that the daemon has looked for its devices, and the resources with devices, which the kubelet
// must know. The daemon is not ready until Begin.
func (m *monitor) Begin(resources ...string) {
	for _, name := range resources {
		m.changeOffer(name, func(o *offer) { o.due = true })
	}
	m.Lack(nil)
}

// Resource watches a resource offered to the kubelet, until done is called. Alive returns an error for a hung
// part.
func (m *monitor) Resource(name string, alive func(context.Context) error) (done func()) {
	m.changeOffer(name, func(o *offer) { o.alive = alive })
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.offered, name)
	}
}

// Offered implements deviceplugin.RegistrationObserver.
func (m *monitor) Offered(resource string) {
	m.changeOffer(resource, func(o *offer) { o.due = true })
	m.counts.prefer.WithLabelValues(resource)
	m.counts.registrations.WithLabelValues(resource)
}

// Registered implements deviceplugin.RegistrationObserver.
func (m *monitor) Registered(resource string) {
	m.changeOffer(resource, func(o *offer) { o.registered, o.cause = true, nil })
	m.counts.registrations.WithLabelValues(resource).Inc()
}

// Unregistered implements deviceplugin.RegistrationObserver.
func (m *monitor) Unregistered(resource string, cause error) {
	m.changeOffer(resource, func(o *offer) { o.registered, o.cause = false, cause })
}

// Preferred implements deviceplugin.RegistrationObserver.
func (m *monitor) Preferred(resource string, took time.Duration) {
	m.counts.prefer.WithLabelValues(resource).Observe(took.Seconds())
}

// Observe counts an event of the coordinator. Observe is the observer of a coordination.Config.
func (m *monitor) Observe(event any) {
	switch e := event.(type) {
	case admission.Answered:
		m.counts.questions.WithLabelValues(string(e)).Inc()
	case admission.Planned:
		m.counts.planned.Add(float64(e))
	case admission.PlanOutcome:
		m.counts.ended.WithLabelValues(string(e)).Inc()
	case admission.Call:
		m.counts.alone.WithLabelValues(string(e)).Inc()
	case admission.Verdict:
		m.addVerdict(e)
	}
}

// Event counts the outcome of an event about a pod.
func (m *monitor) Event(outcome string) {
	m.counts.events.WithLabelValues(outcome).Inc()
}

// Published counts the writes of a publication.
func (m *monitor) Published(target string, err error) {
	outcome := publishWritten
	if err != nil {
		outcome = publishFailed
	}
	m.counts.published.WithLabelValues(target, outcome).Inc()
}

// addVerdict counts an answered Allocate, and passes on the verdict.
func (m *monitor) addVerdict(v admission.Verdict) {
	m.counts.allocations.WithLabelValues(v.Resource, string(v.Outcome)).Inc()
	for _, p := range v.Pairs {
		m.counts.pairs.WithLabelValues(p.Distance.Level.String()).Inc()
	}
	if m.verdict != nil {
		m.verdict(v)
	}
}

// Claims counts a call of the kubelet to package dra.
func (m *monitor) Claims(call string, took time.Duration, claims, failed int) {
	m.counts.claims.WithLabelValues(call, "done").Add(float64(claims - failed))
	m.counts.claims.WithLabelValues(call, "failed").Add(float64(failed))
	m.counts.claim.WithLabelValues(call).Observe(took.Seconds())
}

// Limits of the server: the questions are small, and few ask.
const (
	headerTimeout  = 2 * time.Second
	requestTimeout = 10 * time.Second
	maxHeader      = 8 << 10
	maxScrapes     = 4
	retryListen    = 5 * time.Second
)

// address is a listen address: "127.0.0.1:9477" or ":9478", or a socket in the file system,
// "unix:/run/probe.sock"; "" for none.
type address string

// unix is the prefix of the address of a socket in the file system, for two pods in the node's network, of
// which one replaces the other: both cannot listen on one port.
const unix = "unix:"

// splitNetwork returns the network in the sense of package net, and the address in that network.
func (a address) splitNetwork() (network, address string) {
	if path, ok := strings.CutPrefix(string(a), unix); ok {
		return "unix", path
	}
	return "tcp", string(a)
}

// MarshalText returns the address as the flag spells the address.
func (a address) MarshalText() ([]byte, error) { return []byte(a), nil }

// UnmarshalText accepts HOST:PORT, :PORT, unix:PATH and the empty text.
func (a *address) UnmarshalText(text []byte) error {
	*a = address(text)
	switch network, path := a.splitNetwork(); {
	case *a == "":
		return nil
	case network == "unix" && !filepath.IsAbs(path):
		return fmt.Errorf("want unix:PATH with a path that begins with /, not %q", path)
	case network == "unix":
		return nil
	}
	host, port, err := net.SplitHostPort(string(text))
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err == nil && host != "" && net.ParseIP(host) == nil {
		err = fmt.Errorf("%q is no IP address", host)
	}
	if err != nil {
		return fmt.Errorf("want HOST:PORT, :PORT or nothing: %w", err)
	}
	return nil
}

// Serve serves /metrics at one address and /healthz and /readyz at the other, which may be the same, until
// ctx is done. A failure to listen is logged and retried, so that no pod waits for its devices because of
// metrics.
func (m *monitor) Serve(ctx context.Context, metrics, health address, log *slog.Logger) {
	muxes := map[address]*http.ServeMux{}
	at := func(address address) *http.ServeMux {
		if muxes[address] == nil {
			muxes[address] = http.NewServeMux()
		}
		return muxes[address]
	}
	at(metrics).Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes, Timeout: requestTimeout, EnableOpenMetrics: true,
	}))
	at(health).Handle("GET /healthz", newProbe(m.checkAlive, noDetails))
	at(health).Handle("GET /readyz", newProbe(m.checkReady, m.probeDetails))
	delete(muxes, "")
	var all sync.WaitGroup
	for address, mux := range muxes {
		all.Go(func() { listenAt(ctx, address, mux, log) })
	}
	all.Wait()
}

// listenAt serves at an address until ctx is done.
func listenAt(ctx context.Context, at address, mux *http.ServeMux, log *slog.Logger) {
	network, address := at.splitNetwork()
	complained := false
	for ctx.Err() == nil {
		if info, err := os.Lstat(address); network == "unix" && err == nil && info.Mode().Type() == os.ModeSocket {
			_ = os.Remove(address) // left by an earlier run of this daemon; if it stays, Listen fails
		}
		listener, err := (&net.ListenConfig{}).Listen(ctx, network, address)
		if err == nil {
			log.Info("serving metrics and probes", "address", listener.Addr().String())
			complained = false
			err = serveOn(ctx, listener, mux)
		}
		if err != nil && !complained && ctx.Err() == nil {
			log.Error("metrics and probes not available; retrying", "address", address, "error", err)
			complained = true
		}
		select {
		case <-time.After(retryListen):
		case <-ctx.Done():
		}
	}
}

func serveOn(ctx context.Context, listener net.Listener, mux *http.ServeMux) error {
	server := &http.Server{
		Handler: mux, MaxHeaderBytes: maxHeader, ConnState: new(visitors).stateChanged,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: 2 * requestTimeout,
		IdleTimeout: 12 * requestTimeout,
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	return server.Serve(listener)
}

// Limits of connections per address. A kubelet has one for each probe, a Prometheus server one.
const (
	maxWaiting = 64 // without a request, or idle
	maxServed  = 64 // with a request in progress
)

// visitors are the connections of a server. A connection over the limit closes an old one. So a client in the
// network that opens many connections cannot lock out the kubelet for longer than the kubelet needs to send a
// line. Idle connections are closed before new ones: a client reopens a closed idle connection, but fails if
// a new one closes.
type visitors struct {
	mu                  sync.Mutex
	idle, fresh, served []net.Conn // each the oldest first
}

// stateChanged implements a server's ConnState.
func (v *visitors) stateChanged(conn net.Conn, state http.ConnState) {
	v.mu.Lock()
	defer v.mu.Unlock()
	isIt := func(other net.Conn) bool { return other == conn }
	for _, conns := range []*[]net.Conn{&v.idle, &v.fresh, &v.served} {
		*conns = slices.DeleteFunc(*conns, isIt)
	}
	switch state {
	case http.StateNew:
		v.fresh = append(v.fresh, conn)
	case http.StateIdle:
		v.idle = append(v.idle, conn)
	case http.StateActive:
		v.served = append(v.served, conn)
	case http.StateClosed, http.StateHijacked:
	}
	if len(v.idle)+len(v.fresh) > maxWaiting {
		if len(v.idle) > 0 {
			v.idle = dropOldest(v.idle)
		} else {
			v.fresh = dropOldest(v.fresh)
		}
	}
	if len(v.served) > maxServed {
		v.served = dropOldest(v.served)
	}
}

// dropOldest closes the oldest connection; the server notices.
func dropOldest(conns []net.Conn) []net.Conn {
	_ = conns[0].Close()
	return slices.Delete(conns, 0, 1)
}
