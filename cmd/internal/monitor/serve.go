// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
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

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Limits of the server: the questions are small, and few ask.
const (
	headerTimeout  = 2 * time.Second
	requestTimeout = 10 * time.Second
	maxHeader      = 8 << 10
	maxScrapes     = 4
	retryListen    = 5 * time.Second
)

// Address is a listen address: "127.0.0.1:9477" or ":9478", or a socket in the file system,
// "unix:/run/probe.sock"; "" for none.
type Address string

// unix is the prefix of the address of a socket in the file system, for two pods in the node's network, of
// which one replaces the other: both cannot listen on one port.
const unix = "unix:"

// split returns the network in the sense of package net, and the address in that network.
func (a Address) split() (network, address string) {
	if path, ok := strings.CutPrefix(string(a), unix); ok {
		return "unix", path
	}
	return "tcp", string(a)
}

// MarshalText returns the address as the flag spells the address.
func (a Address) MarshalText() ([]byte, error) { return []byte(a), nil }

// UnmarshalText accepts HOST:PORT, :PORT, unix:PATH and the empty text.
func (a *Address) UnmarshalText(text []byte) error {
	*a = Address(text)
	switch network, path := a.split(); {
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
func (m *Monitor) Serve(ctx context.Context, metrics, health Address, log *slog.Logger) {
	muxes := map[Address]*http.ServeMux{}
	at := func(address Address) *http.ServeMux {
		if muxes[address] == nil {
			muxes[address] = http.NewServeMux()
		}
		return muxes[address]
	}
	at(metrics).Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes, Timeout: requestTimeout, EnableOpenMetrics: true,
	}))
	at(health).Handle("GET /healthz", probe(m.alive, nothing))
	at(health).Handle("GET /readyz", probe(m.ready, m.details))
	delete(muxes, "")
	var all sync.WaitGroup
	for address, mux := range muxes {
		all.Go(func() { listen(ctx, address, mux, log) })
	}
	all.Wait()
}

// listen serves at an address until ctx is done.
func listen(ctx context.Context, at Address, mux *http.ServeMux, log *slog.Logger) {
	network, address := at.split()
	complained := false
	for ctx.Err() == nil {
		if info, err := os.Lstat(address); network == "unix" && err == nil && info.Mode().Type() == os.ModeSocket {
			_ = os.Remove(address) // left by an earlier run of this daemon; if it stays, Listen fails
		}
		listener, err := (&net.ListenConfig{}).Listen(ctx, network, address)
		if err == nil {
			log.Info("serving metrics and probes", "address", listener.Addr().String())
			complained = false
			err = serve(ctx, listener, mux)
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

func serve(ctx context.Context, listener net.Listener, mux *http.ServeMux) error {
	server := &http.Server{
		Handler: mux, MaxHeaderBytes: maxHeader, ConnState: new(visitors).changed,
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

// changed implements a server's ConnState.
func (v *visitors) changed(conn net.Conn, state http.ConnState) {
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
