package main

import (
	"context"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	"github.com/tandem-k8s/tandem/plugins/gpu/amd/exporter"
)

// amdFlags are the flags of AMD's own plugin, and what it has no flag for.
type amdFlags struct {
	naming         string
	pulse          time.Duration
	driverType     string
	exporterSocket string
}

func (f *amdFlags) register(set *pflag.FlagSet) {
	set.StringVar(&f.naming, "resource_naming_strategy", string(amd.Single), "single (amd.com/gpu) or mixed (amd.com/cpx_nps4)")
	set.Var((*seconds)(&f.pulse), "pulse", "seconds between two looks at the GPUs' health and partitioning; 0 is one look, at the start")
	set.StringVar(&f.driverType, "driver_type", "container", "container; the virtual machines' types of AMD's plugin are not offered")
	set.StringVar(&f.exporterSocket, "amd-exporter-socket", exporter.Socket, "where the AMD Device Metrics Exporter listens, which is asked for health on every pulse")
}

// backend makes what finds the GPUs below a sysfs root.
func (f *amdFlags) backend(sys fs.FS) (*amd.Backend, error) {
	if f.driverType != "container" && f.driverType != "" {
		return nil, fmt.Errorf("--driver_type %q: want container: GPUs for virtual machines are what AMD's own plugin offers", f.driverType)
	}
	backend, err := amd.New(sys, amd.Naming(f.naming))
	if err != nil {
		return nil, err
	}
	if f.pulse > 0 { // one look would leave a GPU unhealthy for ever
		backend.Heed("the metrics exporter", func(ctx context.Context) (map[string]bool, error) {
			return exporter.Health(ctx, f.exporterSocket)
		})
	}
	return backend, nil
}

// seconds is a duration that a flag counts in seconds.
type seconds time.Duration

// String implements pflag.Value.
func (s *seconds) String() string { return strconv.Itoa(int(time.Duration(*s) / time.Second)) }

// Set implements pflag.Value.
func (s *seconds) Set(text string) error {
	n, err := strconv.ParseInt(text, 0, 32)
	*s = seconds(n) * seconds(time.Second)
	return err
}

// Type implements pflag.Value.
func (s *seconds) Type() string { return "int" }
