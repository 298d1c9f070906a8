// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvidia

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/nvml"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a recorded machine with the NVML stand-in as its driver.
type node struct {
	*nvml.Driver
	sys     fs.FS
	devRoot string
	cdiRoot string
}

// record makes a node of a recorded machine, changed as the test likes.
func record(t *testing.T, machine string, change func(*nvml.Machine)) *node {
	t.Helper()
	root := machines.Sys(t, machine, 1)
	shown, err := nvml.Record(root)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&shown)
	}
	n := &node{Driver: nvml.Start(t, shown), sys: root, devRoot: t.TempDir(), cdiRoot: t.TempDir()}
	if err := os.Mkdir(filepath.Join(n.devRoot, "nvidia-caps"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Concat(controlNodes[:3], shown.Nodes()) {
		if err := os.WriteFile(filepath.Join(n.devRoot, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// open opens the node's driver as these flags say.
func (n *node) open(t *testing.T, args ...string) (*Backend, error) {
	t.Helper()
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags := Register(set)
	if err := set.Parse(append([]string{"--driver-root-ctr-path=" + n.Root}, args...)); err != nil {
		t.Fatal(err)
	}
	config, err := flags.Load(func(string) (string, bool) { return "", false })
	if err != nil {
		return nil, err
	}
	proc := fstest.MapFS{migMinors: {Data: []byte(n.Machine.Minors())}}
	backend, err := Open(config, Machine{
		Sys: n.sys, Proc: proc, DevRoot: n.devRoot, CDIRoot: n.cdiRoot, Recheck: 50 * time.Millisecond,
	}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		return nil, err
	}
	t.Cleanup(backend.Close)
	return backend, nil
}

// discover opens the driver and reads it once.
func (n *node) discover(t *testing.T, args ...string) (*Backend, gpu.Inventory) {
	t.Helper()
	backend, err := n.open(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return backend, later(t, backend)
}

// later discovers again.
func later(t *testing.T, backend *Backend) gpu.Inventory {
	t.Helper()
	inventory, err := backend.Discover()
	if err != nil {
		t.Fatal(err)
	}
	return inventory
}

// fails returns why the plugin cannot start with these flags.
func (n *node) fails(t *testing.T, args ...string) error {
	t.Helper()
	backend, err := n.open(t, args...)
	if err != nil {
		return err
	}
	_, err = backend.Discover()
	return err
}

// watch runs the backend's Watch until the test ends and returns a channel that gets a token when it is time
// to discover.
func watch(t *testing.T, backend *Backend) <-chan struct{} {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	due, done := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		done <- backend.Watch(ctx, func() {
			select {
			case due <- struct{}{}:
			default:
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("watch: %v", err)
		}
	})
	return due
}
