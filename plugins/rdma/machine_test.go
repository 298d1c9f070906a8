// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
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
