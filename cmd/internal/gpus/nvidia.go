// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/daemon"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/nvidia"
)

// NVIDIA are the flags of NVIDIA's own plugin and Tandem's additions.
type NVIDIA struct {
	Stock    *nvidia.Flags
	procRoot string
}

// StockNVIDIA is the name of NVIDIA's own plugin. Started under this name, by a link, tandem-gpu replaces
// that plugin: manifests need no change, and NVIDIA's config-manager finds the process by this name.
const StockNVIDIA = "nvidia-device-plugin"

// Register adds Tandem's flags to own and those of NVIDIA's plugin to stock.
func (f *NVIDIA) Register(own, stock *pflag.FlagSet) {
	f.Stock = nvidia.Register(stock)
	own.StringVar(&f.procRoot, "proc-root", "/proc", "folder to read the device nodes of MIG devices from")
}

// checkWhileUnused logs that the configuration file is not used. It returns an error if the file is missing.
func (f *NVIDIA) checkWhileUnused(flag string, log *slog.Logger) error {
	file := f.Stock.File()
	if file == "" {
		return nil
	}
	if _, err := os.Stat(file); err != nil {
		return fmt.Errorf("use %s, which is for NVIDIA GPUs: %w", flag, err)
	}
	log.Warn("configuration file ignored, because it applies to NVIDIA GPUs", "file", file)
	return nil
}

// newMachine returns the paths of the node's files.
func (f *NVIDIA) newMachine(n node) nvidia.Machine {
	return nvidia.Machine{
		Sys: n.sys, Proc: os.DirFS(f.procRoot), DevRoot: n.DevRoot, CDIRoot: n.cdiRoot, Recheck: n.recheck,
	}
}

// offerGPUs starts over on every SIGHUP, which config-manager sends after a change of the configuration. A
// missing or wrong configuration keeps the running one.
func (f *NVIDIA) offerGPUs(ctx context.Context, n node, serve serve) error {
	var running *nvidia.Config
	return daemon.Restarting(ctx, n.log, func(ctx context.Context, _ func()) error {
		config, err := f.Stock.Load(os.LookupEnv)
		switch {
		case err == nil:
			running = &config
		case running == nil:
			return err
		default:
			n.log.Error("configuration of NVIDIA GPUs not read; the running one stays in use", "error", err)
		}
		return f.offerOnce(ctx, n, *running, serve)
	})
}

// offerOnce offers the GPUs with a configuration. Without a driver it waits for one, unless the configuration
// makes an absent driver an error.
func (f *NVIDIA) offerOnce(ctx context.Context, n node, config nvidia.Config, serve serve) error {
	n.log.Info("loaded configuration of NVIDIA GPUs", "config", config)
	if config.KubeletSocket == "" {
		n.Begin()
		n.log.Warn("offering no device, because --kubelet-socket is empty")
		<-ctx.Done()
		return nil
	}
	if dir, said := config.KubeletDir(); said {
		n.KubeletDir = dir
	}
	open := func() (*nvidia.Backend, error) { return nvidia.Open(config, f.newMachine(n), n.log) }
	look := func() (*nvidia.Backend, error) { return awaitDriver(ctx, n, gpu.NVIDIA, open) }
	if config.FailOnInitError {
		look = open
	}
	backend, err := look()
	if err != nil {
		return err
	}
	defer backend.Close()
	found, err := gpu.Discover(backend, 0, n.log)
	if err != nil {
		return err
	}
	return serve(ctx, n.Flags, found, n.log)
}

// findGPUs finds the GPUs for claims.
func (f *NVIDIA) findGPUs(n node) (found *gpu.GPUs, leave func(), err error) {
	config, err := f.Stock.Load(os.LookupEnv)
	if err != nil {
		return nil, nil, err
	}
	config = config.ForClaims()
	n.log.Info("loaded configuration of NVIDIA GPUs", "config", config)
	backend, err := nvidia.Open(config, f.newMachine(n), n.log)
	if err != nil {
		return nil, nil, err
	}
	found, err = gpu.Discover(backend, 0, n.log)
	if err != nil {
		backend.Close()
		return nil, nil, err
	}
	return found, backend.Close, nil
}

// seconds is a duration that a flag gives in seconds.
type seconds time.Duration

// String implements pflag.Value.
func (s *seconds) String() string { return strconv.Itoa(int(time.Duration(*s) / time.Second)) }

// Set implements pflag.Value.
func (s *seconds) Set(text string) error {
	n, err := strconv.ParseInt(text, 0, 32)
	if err != nil || n < 0 {
		return errors.New("want a number of seconds, or 0 for never")
	}
	*s = seconds(n) * seconds(time.Second)
	return nil
}

// Type implements pflag.Value.
func (s *seconds) Type() string { return "int" }

// pause is a duration greater than zero.
type pause time.Duration

// String implements pflag.Value.
func (p *pause) String() string { return time.Duration(*p).String() }

// Set implements pflag.Value.
func (p *pause) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return errors.New("want a time such as 30s")
	}
	*p = pause(d)
	return nil
}

// Type implements pflag.Value.
func (p *pause) Type() string { return "duration" }
