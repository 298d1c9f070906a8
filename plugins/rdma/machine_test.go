// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func resources(list ...string) string { return `{"resourceList": [` + strings.Join(list, ",") + `]}` }

// config reads a configuration that has to be right.
func config(t testing.TB, text string) *pools.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := pools.ReadConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// find finds the pools of a machine.
func find(t testing.TB, sys fs.FS, list, prefix string, events events) *VFs {
	t.Helper()
	finder := pools.Finder{Sys: sys, Prefix: prefix}
	file := filepath.Join(t.TempDir(), "vfs.json")
	vfs, err := FindVFs(finder, config(t, list), Known{File: file}, events, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return vfs
}

// ids lists the device IDs of a pool.
func ids(p pools.Pool) []string {
	var ids []string
	for _, d := range p.Devices {
		ids = append(ids, d.ID)
	}
	return ids
}

// scan looks at the machine as the daemon does after a change.
func scan(t testing.TB, vfs *VFs) {
	t.Helper()
	if err := vfs.scanMachine(); err != nil {
		t.Fatal(err)
	}
}

// findAgain finds the pools of a machine as another daemon does, with what it knows.
func findAgain(t *testing.T, before *VFs, known Known) *VFs {
	t.Helper()
	after, err := FindVFs(before.finder, before.config, known, nil, before.log)
	if err != nil {
		t.Fatal(err)
	}
	return after
}

// restarted finds the pools anew as after a restart of the daemon.
func restarted(t *testing.T, before *VFs) *VFs {
	t.Helper()
	return findAgain(t, before, Known{File: before.known.File})
}

// state prints the devices of a pool, those with a fault followed by it.
func state(v *VFs, name string) []string {
	pool, _ := v.latestPool(name)
	var lines []string
	for _, d := range pool.Devices {
		lines = append(lines, strings.TrimSpace(d.ID+" "+d.Fault))
	}
	return lines
}

// unplugFrom removes functions from a machine as the kernel does: their folders go, and the links to them.
func unplugFrom(s functions.Sysfs, ids ...string) {
	for _, id := range ids {
		s.Remove(functions.Dir(id))
		s.Remove(topology.PCIDevices + "/" + id)
	}
}

// runs runs a part of the daemon until the end of the test.
func runs(t *testing.T, part func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- part(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
}
