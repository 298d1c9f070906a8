// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/tandem-k8s/tandem/cmd/internal/daemon"
	"github.com/tandem-k8s/tandem/cmd/internal/gpus"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/nvidia"
	"github.com/tandem-k8s/tandem/plugins/gpu/nvidia/settings"
)

// nvidiaGPUs are NVIDIA's GPUs as configured by the flags.
type nvidiaGPUs struct{ gpus.NVIDIA }

// run offers NVIDIA's GPUs until ctx is done. It starts over on every SIGHUP, which config-manager sends
// after a change of the configuration.
func (f *nvidiaGPUs) run(ctx context.Context, flags daemon.Flags, log *slog.Logger) error {
	return daemon.Restarting(ctx, log, func(ctx context.Context, _ func()) error {
		return f.once(ctx, flags, log)
	})
}

// once offers the GPUs with the current configuration.
func (f *nvidiaGPUs) once(ctx context.Context, flags daemon.Flags, log *slog.Logger) error {
	config, err := f.Stock.Load(os.LookupEnv)
	if err != nil {
		return err
	}
	log.Info("configuration of NVIDIA GPUs", "config", config)
	if config.KubeletSocket == "" {
		flags.Begin()
		log.Warn("nothing is offered: --kubelet-socket is empty")
		<-ctx.Done()
		return nil
	}
	if dir, said := config.KubeletDir(); said {
		flags.KubeletDir = dir
	}
	sys, err := flags.Sysfs()
	if err != nil {
		return err
	}
	backend, err := f.open(ctx, config, f.Machine(sys, flags), flags, log)
	if err != nil {
		return err
	}
	defer backend.Close()
	for _, warning := range backend.Warnings() {
		log.Warn("configuration", "warning", warning)
	}
	found, err := gpu.Discover(backend, 0, log)
	if err != nil {
		return err
	}
	return serve(ctx, flags, found, log)
}

// open initializes NVML. Without a driver it waits for one, unless the configuration makes an absent driver
// an error.
func (f *nvidiaGPUs) open(
	ctx context.Context, config settings.Config, machine nvidia.Machine, flags daemon.Flags, log *slog.Logger,
) (*nvidia.Backend, error) {
	look := func() (*nvidia.Backend, error) { return nvidia.Open(config, machine, log) }
	if config.FailOnInitError {
		return look()
	}
	none := gpus.Absence{Reason: nvidia.ErrNoDriver, Every: f.Recheck, Vendor: gpus.VendorNVIDIA}
	return gpus.AwaitDriver(ctx, none, flags, log, look)
}
