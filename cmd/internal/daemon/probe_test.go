// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
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
