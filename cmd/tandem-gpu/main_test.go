// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"github.com/tandem-k8s/tandem/cmd/internal/daemon"
	"github.com/tandem-k8s/tandem/cmd/internal/gpus"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/machines"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// layout creates the folders of a node: a recorded machine and a kubelet. It writes thousands of files; share
// the result.
func layout(t *testing.T, machine string) daemon.Flags {
	t.Helper()
	dir := kubelettest.Dir(t)
	var flags daemon.Flags
	flags.Register(pflag.NewFlagSet("", pflag.ContinueOnError))
	flags.SysfsRoot, flags.DevRoot = filepath.Join(dir, "sys"), filepath.Join(dir, "dev")
	flags.KubeletDir, flags.RunDir = dir, filepath.Join(dir, "run")
	if err := os.CopyFS(flags.SysfsRoot, machines.Sys(t, machine, 1)); err != nil {
		t.Fatal(err)
	}
	return flags
}

// defaults returns the defaults of the flags for AMD.
func defaults() gpus.AMD {
	var f gpus.AMD
	f.Register(pflag.NewFlagSet("", pflag.ContinueOnError), nil)
	return f
}

// run offers AMD GPUs until ctx is done.
func run(ctx context.Context, flags daemon.Flags, own gpus.AMD, log *slog.Logger) error {
	var f gpus.Flags
	f.Register(pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError))
	f.Vendor, f.AMD = gpu.AMD, own
	return f.Offer(ctx, "tandem-gpu", flags, serve, log)
}

func named(naming amd.Naming) gpus.AMD {
	f := defaults()
	f.Naming = string(naming)
	return f
}

func pulsing(naming amd.Naming, pulse time.Duration) gpus.AMD {
	f := named(naming)
	f.Pulse = pulse
	return f
}

// start runs the daemon until the test ends.
func start(t *testing.T, flags daemon.Flags, own gpus.AMD) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- run(ctx, flags, own, slog.New(slog.NewTextHandler(t.Output(), nil))) }()
	t.Cleanup(func() {
		cancel()
		if err := kubelettest.Await(t, result); err != nil {
			t.Errorf("run: %v", err)
		}
	})
}
