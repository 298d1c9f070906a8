// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/goleak"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

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

func TestRecordedMachines(t *testing.T) {
	for _, c := range []struct {
		machine  string
		resource map[amd.Naming]string
		devices  int
	}{
		{"oci-mi300x-derived", map[amd.Naming]string{amd.Single: "amd.com/gpu", amd.Mixed: "amd.com/spx_nps1"}, 8},
		{"amd-mi250-16gcd-8nic", map[amd.Naming]string{amd.Single: "amd.com/gpu", amd.Mixed: "amd.com/gpu"}, 16},
		{"amd-mi300x-smc-thor2-cpx-derived",
			map[amd.Naming]string{amd.Single: "amd.com/gpu", amd.Mixed: "amd.com/cpx_nps1"}, 63},
	} {
		flags := layout(t, c.machine)
		for naming, resource := range c.resource {
			t.Run(fmt.Sprint(c.machine, " ", naming), func(t *testing.T) {
				kubelet := kubelettest.Start(t, flags.KubeletDir)
				began := time.Now()
				start(t, flags, named(naming))
				plugin := kubelettest.Await(t, kubelet.Plugins)
				t.Logf("registered after %s", time.Since(began))
				if got := plugin.Request.GetResourceName(); got != resource {
					t.Errorf("registered %s, want %s", got, resource)
				}
				devices := kubelettest.Await(t, plugin.Lists)
				if len(devices) != c.devices {
					t.Errorf("%d devices, want %d", len(devices), c.devices)
				}
				allocateAll(t, plugin, devices)
			})
		}
	}
}

// TestSocketNames: a socket has the resource's name and a unique suffix.
func TestSocketNames(t *testing.T) {
	flags := layout(t, "oci-mi300x-derived")
	kubelet := kubelettest.Start(t, flags.KubeletDir)
	start(t, flags, named(amd.Single))
	seen := map[string]bool{}
	for range 3 {
		plugin := kubelettest.Await(t, kubelet.Plugins)
		name := plugin.Request.GetEndpoint()
		if !regexp.MustCompile(`^amd\.com_gpu-[A-Z2-7]{12}\.sock$`).MatchString(name) || seen[name] {
			t.Errorf("socket %s, before it %v", name, seen)
		}
		if dir := filepath.Dir(plugin.Socket); dir != kubelettest.Plugins(flags.KubeletDir) {
			t.Errorf("the socket is in %s", dir)
		}
		seen[name] = true
		kubelet.Recreate()
	}
}

// allocateAll allocates every device at once: all must be in the answer, without duplicates.
func allocateAll(t *testing.T, plugin *kubelettest.Plugin, devices []*v1beta1.Device) {
	t.Helper()
	var ids []string
	for _, d := range devices {
		if ids = append(ids, d.GetID()); d.GetHealth() != v1beta1.Healthy || len(d.GetTopology().GetNodes()) != 1 {
			t.Errorf("device %v", d)
		}
	}
	answer, err := plugin.Allocate(t.Context(), ids...)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, d := range answer.GetDevices() {
		seen[d.GetHostPath()] = true
	}
	if want := 1 + 2*len(ids); len(seen) != want || len(answer.GetDevices()) != want ||
		len(answer.GetEnvs()) > 0 {
		t.Errorf("%d device nodes, %d different ones, want %d", len(answer.GetDevices()), len(seen), want)
	}
}

// hide takes a file or folder of the machine away until the test ends.
func hide(t *testing.T, path string) {
	t.Helper()
	if err := os.Rename(path, path+".hidden"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Rename(path+".hidden", path) })
}
