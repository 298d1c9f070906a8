// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"context"
	"io/fs"
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	"github.com/tandem-k8s/tandem/plugins/gpu/amd/smi"
	"github.com/tandem-k8s/tandem/plugins/health"
)

// AMD are the flags of AMD's own plugin and Tandem's additions.
type AMD struct {
	Naming         string
	Pulse          time.Duration // interval between two looks; 0 for a single look
	driverType     string
	ExporterSocket string
	Library        string
}

// Register adds all flags to one set.
func (f *AMD) Register(set, _ *pflag.FlagSet) {
	set.StringVar(&f.Naming, "resource_naming_strategy", string(amd.Single),
		"resource names of AMD GPUs: single (amd.com/gpu) or mixed (by partition mode, such as amd.com/cpx_nps4)")
	set.Var((*seconds)(&f.Pulse), "pulse",
		"interval in seconds between checks of the GPUs' health and partitioning; 0 checks only at the start")
	plainflag.Choice(set, &f.driverType, "driver_type", "container",
		"type of GPU use: container; the virtual machine types of AMD's plugin are not supported", "container", "")
	set.StringVar(&f.ExporterSocket, "amd-exporter-socket", health.GPUExporter,
		"socket of the AMD Device Metrics Exporter, queried for GPU health at each --pulse")
	set.StringVar(&f.Library, "amd-smi-library", "libamd_smi.so",
		"AMD SMI library, used if installed; empty to disable")
}

// Backend returns the backend that finds the GPUs below a sysfs root, with their nodes in a folder.
func (f *AMD) Backend(sys fs.FS, devRoot string, log *slog.Logger) (*amd.Backend, error) {
	backend, err := amd.New(sys, amd.Naming(f.Naming))
	if err != nil {
		return nil, err
	}
	if f.Pulse > 0 { // after a single look a GPU would stay unhealthy
		backend.SeeNodes(container.HostNodes(devRoot))
		backend.Heed("the metrics exporter", func(ctx context.Context) (map[string]bool, error) {
			return health.GPUHealth(ctx, f.ExporterSocket)
		})
	}
	if f.Library != "" {
		f.consultLibrary(backend, log)
	}
	return backend, nil
}

// consultLibrary adds the AMD SMI library, if installed, to the backend's sysfs readings.
func (f *AMD) consultLibrary(backend *amd.Backend, log *slog.Logger) {
	const name = "libamd_smi"
	library, err := smi.Open(f.Library)
	if err != nil {
		log.Info("AMD SMI library not used; reading AMD GPUs from sysfs only", "reason", err)
		return
	}
	backend.Consult(name, library)
	if f.Pulse > 0 {
		const slack = 10 // a check can be early by this part of the pulse
		backend.Heed(name+"'s count of uncorrectable memory errors", library.Errors(f.Pulse-f.Pulse/slack))
	}
}

func (f *AMD) offerGPUs(ctx context.Context, n node, serve serve) error {
	backend, err := f.Backend(n.sys, n.DevRoot, n.log)
	if err != nil {
		return err
	}
	look := func() (*gpu.GPUs, error) { return gpu.Discover(backend, f.Pulse, n.log) }
	found, err := awaitDriver(ctx, n, gpu.AMD, look)
	if err != nil {
		return err
	}
	return serve(ctx, n.Flags, found, n.log)
}

func (f *AMD) findGPUs(n node) (found *gpu.GPUs, leave func(), err error) {
	backend, err := f.Backend(n.sys, n.DevRoot, n.log)
	if err != nil {
		return nil, nil, err
	}
	found, err = gpu.Discover(backend, f.Pulse, n.log)
	return found, func() {}, err
}
