// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/daemon"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	"github.com/tandem-k8s/tandem/plugins/gpu/nvidia"
	"github.com/tandem-k8s/tandem/plugins/gpu/nvidia/settings"
)

// Flags are the flags of all vendors, for a daemon that passes GPUs to containers through CDI.
type Flags struct {
	Vendor string
	AMD    AMD
	NVIDIA NVIDIA
}

// Register adds Tandem's flags to own and those of NVIDIA's plugin to stock.
func (f *Flags) Register(own, stock *pflag.FlagSet) {
	RegisterVendorOrNone(own, &f.Vendor)
	f.AMD.Register(own)
	f.NVIDIA.Register(own, stock)
}

// Recheck returns the interval between two looks for an absent driver.
func (f *Flags) Recheck() time.Duration { return f.NVIDIA.Recheck }

// CDIRoot returns the folder for CDI specs.
func (f *Flags) CDIRoot() string { return f.NVIDIA.CDIRoot }

// IsAbsent reports whether err means that no GPU driver is loaded.
func IsAbsent(err error) bool {
	absent := []error{ErrNoDriver, amd.ErrNoDriver, nvidia.ErrNoDriver}
	return slices.ContainsFunc(absent, func(a error) bool { return errors.Is(err, a) })
}

// Find finds the node's GPUs. Their vendor's library is in use until leave is called.
func (f *Flags) Find(
	program string, sys fs.FS, flags daemon.Flags, log *slog.Logger,
) (found *gpu.GPUs, leave func(), err error) {
	vendor, err := Detect(sys, program, f.Vendor)
	if err != nil {
		return nil, nil, err
	}
	if vendor == VendorNVIDIA {
		return f.NVIDIA.find(sys, flags, log)
	}
	if err := f.NVIDIA.Unread("--gpu-config-file", log); err != nil {
		return nil, nil, err
	}
	backend, err := f.AMD.Backend(sys, log)
	if err != nil {
		return nil, nil, err
	}
	found, err = gpu.Discover(backend, f.AMD.Pulse, log)
	return found, func() {}, err
}

// find returns NVIDIA's GPUs, for containers that get them through CDI.
func (f *NVIDIA) find(
	sys fs.FS, flags daemon.Flags, log *slog.Logger,
) (found *gpu.GPUs, leave func(), err error) {
	config, err := f.Stock.Load(os.LookupEnv)
	if err != nil {
		return nil, nil, err
	}
	isAnnotation := func(strategy string) bool { return strategy == settings.ListCDIAnnotations }
	if some, _ := config.CDI(); !some || slices.ContainsFunc(config.DeviceList, isAnnotation) {
		config.DeviceList = []string{settings.ListCDICRI}
	}
	log.Info("configuration of NVIDIA GPUs", "config", config)
	backend, err := nvidia.Open(config, f.Machine(sys, flags), log)
	if err != nil {
		return nil, nil, err
	}
	for _, warning := range backend.Warnings() {
		log.Warn("configuration", "warning", warning)
	}
	if found, err = gpu.Discover(backend, 0, log); err != nil {
		backend.Close()
		return nil, nil, err
	}
	return found, backend.Close, nil
}
