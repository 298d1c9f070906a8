// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// await retries until the answer contains a text, "" for no error, because the daemon starts to listen later.
func await(t *testing.T, at address, what probe, want string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := askProbe(t.Context(), at, what)
		if err == nil && want == "" || err != nil && want != "" && strings.Contains(err.Error(), want) {
			return
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("%s: %v, want %q", what, err, want)
		}
	}
}

// Two daemons in one network namespace answer separately, also at a socket left by an earlier process.
func TestAsk(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) address { return address(unix + filepath.Join(dir, name)) }
	older, newer := at("older.sock"), at("newer.sock")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "newer.sock")})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	ctx, stop := context.WithCancel(t.Context())
	var served sync.WaitGroup
	defer served.Wait()
	defer stop()
	serve := func(at address) *monitor {
		m := newMonitor("test")
		served.Go(func() { m.Serve(ctx, "", at, slog.New(slog.DiscardHandler)) })
		return m
	}
	serve(older).Begin()
	m := serve(newer)
	await(t, older, ready, "")
	await(t, newer, ready, "what there is to offer is not known yet")
	await(t, newer, alive, "")
	m.Begin()
	await(t, newer, ready, "")
	if err := askProbe(t.Context(), at("none.sock"), alive); err == nil {
		t.Error("a daemon that is not there is alive")
	}
	const flag = "--health-probe-bind-address"
	if err := askProbe(t.Context(), "", alive); err == nil || !strings.Contains(err.Error(), flag) {
		t.Error(err)
	}
}

func TestAddresses(t *testing.T) {
	var a address
	for text, ok := range map[string]bool{
		"unix:/run/probe.sock": true, "unix:probe.sock": false, "unix:": false, ":9477": true, "": true,
	} {
		if err := a.UnmarshalText([]byte(text)); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestFlood: with any number of connections of others, few are kept, and probes are answered.
func TestFlood(t *testing.T) {
	for name, sent := range map[string]string{
		"silent":                     "",
		"half a header":              "GET /healthz HTTP/1.1\r\nX: ",
		"answers that never end":     "GET /endless HTTP/1.1\r\nHost: a\r\n\r\n",
		"idle between two questions": "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			listener := &counted{Listener: listenLocally(t)}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- serveOn(ctx, listener, probed()) }()
			flood := open(t, listener.Addr(), 6*(maxWaiting+maxServed), sent)
			answer, err := (&http.Client{
				Transport: &http.Transport{DisableKeepAlives: true},
			}).Get("http://" + listener.Addr().String() + "/healthz")
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if peak, most := listener.most(), maxWaiting+maxServed+1; answer.StatusCode != http.StatusOK ||
				peak > most {
				t.Errorf("the probe got %d beside %d connections at a time, want 200 beside %d",
					answer.StatusCode, peak, most)
			}
			cancel()
			if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
			for _, conn := range flood {
				conn.Close()
			}
		})
	}
}

// probed answers probes, and has a page without end.
func probed() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", newProbe(func(context.Context) error { return nil }, noDetails))
	mux.HandleFunc("GET /endless", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	return mux
}

func listenLocally(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// open opens connections that each send the same text. The server may close a connection at once.
func open(t *testing.T, at net.Addr, count int, sent string) (conns []net.Conn) {
	t.Helper()
	for range count {
		conn, err := net.Dial(at.Network(), at.String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, sent)
		conns = append(conns, conn)
	}
	return conns
}

// counted counts the open connections.
type counted struct {
	net.Listener
	mu         sync.Mutex
	open, peak int
}

func (c *counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.add(1)
	return &countedConn{conn, sync.OnceFunc(func() { c.add(-1) })}, nil
}

func (c *counted) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open += n
	c.peak = max(c.peak, c.open)
}

func (c *counted) most() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peak
}

type countedConn struct {
	net.Conn
	closed func()
}

func (c *countedConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

// TestSlowHeader: an endless header is read for a limited time, byte by byte or not, and a too long one is
// rejected.
func TestSlowHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipes := make(pipes)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- serveOn(ctx, pipes, probed()) }()
		ours, theirs := net.Pipe()
		pipes <- theirs
		began := time.Now()
		_, err := io.WriteString(ours, "GET /healthz HTTP/1.1\r\nX: ")
		for ; err == nil; _, err = io.WriteString(ours, "X") {
			<-time.After(100 * time.Millisecond)
		}
		if took := time.Since(began); took > headerTimeout+200*time.Millisecond {
			t.Errorf("the header was waited for for %s, want %s", took, headerTimeout)
		}
		ours.Close()

		ours, theirs = net.Pipe()
		pipes <- theirs
		go func() { _, _ = fmt.Fprintf(ours, "GET /healthz HTTP/1.1\r\nX: %0*d\r\n\r\n", 2*maxHeader, 0) }()
		answer, err := http.ReadResponse(bufio.NewReader(ours), nil)
		if err != nil || answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("a long header: %v, %v", answer, err)
		}
		ours.Close()
		cancel()
		<-ended
		<-time.After(time.Second) // the server gives a rejected client time to read the answer
	})
}

// pipes is a listener for connections of this process.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// A connected probe without a request keeps its connection, however many connections become idle.
func TestIdleConnectionsGoFirst(t *testing.T) {
	t.Parallel()
	var all visitors
	probe, other := net.Pipe()
	defer other.Close()
	all.stateChanged(probe, http.StateNew)
	for range 3 * maxWaiting {
		conn, end := net.Pipe()
		defer end.Close()
		for _, state := range []http.ConnState{http.StateNew, http.StateActive, http.StateIdle} {
			all.stateChanged(conn, state)
		}
	}
	if !slices.Contains(all.fresh, probe) {
		t.Error("the probe's connection was dropped for idle ones")
	}
	if waiting := len(all.idle) + len(all.fresh); waiting != maxWaiting {
		t.Errorf("%d connections wait, want %d", waiting, maxWaiting)
	}
}
