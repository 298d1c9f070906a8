package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/daemon"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/nvidia"
	"github.com/tandem-k8s/tandem/plugins/gpu/nvidia/settings"
)

// nvidiaFlags are the flags of NVIDIA's own plugin, and what it has no flag for.
type nvidiaFlags struct {
	stock    *settings.Flags
	procRoot string
	cdiRoot  string
	recheck  time.Duration
}

func (f *nvidiaFlags) register(own, stock *pflag.FlagSet) {
	f.stock = settings.Register(stock)
	own.StringVar(&f.procRoot, "proc-root", "/proc", "folder to read the device nodes of MIG devices from")
	own.StringVar(&f.cdiRoot, "cdi-root", "/var/run/cdi", "folder of the CDI specifications that are written")
	f.recheck = recheck
	own.Var((*pause)(&f.recheck), "nvidia-recheck", "time between two looks at an NVIDIA GPU that is broken, "+
		"healthy ones are not looked at, or for a driver that is not there, AMD's too")
}

// unread says that the file of --config-file is not read, for GPUs that are not NVIDIA's. One that is not
// there is a mistake all the same.
func (f *nvidiaFlags) unread(log *slog.Logger) error {
	file := f.stock.File()
	if file == "" {
		return nil
	}
	if _, err := os.Stat(file); err != nil {
		return fmt.Errorf("use --config-file, which is for NVIDIA GPUs: %w", err)
	}
	log.Warn("the configuration file is not read: it is for NVIDIA GPUs", "file", file)
	return nil
}

// errReload says that SIGHUP came.
var errReload = errors.New("reload")

// run offers NVIDIA's GPUs until ctx is done, and starts over on every SIGHUP: config-manager sends it when
// it has changed the configuration.
func (f *nvidiaFlags) run(ctx context.Context, flags daemon.Flags, log *slog.Logger) error {
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	for {
		attempt, cancel := context.WithCancelCause(ctx)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			select {
			case <-reload:
				cancel(errReload)
			case <-attempt.Done():
			}
		}()
		err := f.once(attempt, flags, log)
		cancel(nil)
		<-stopped
		if err != nil && !errors.Is(err, context.Canceled) || !errors.Is(context.Cause(attempt), errReload) {
			return err
		}
		log.Info("reload", "cause", "SIGHUP")
	}
}

// once offers the GPUs as the configuration has them now.
func (f *nvidiaFlags) once(ctx context.Context, flags daemon.Flags, log *slog.Logger) error {
	config, err := f.stock.Load(os.LookupEnv)
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
	backend, err := f.open(ctx, config, f.machine(sys, flags), flags, log)
	if err != nil {
		return err
	}
	defer backend.Close()
	for _, warning := range backend.Warnings() {
		log.Warn("configuration", "warning", warning)
	}
	gpus, err := gpu.Discover(backend, 0, log)
	if err != nil {
		return err
	}
	return serve(ctx, flags, gpus, log)
}

// open enters NVML. Where the driver is not there it waits for it, unless that is to be a failure.
func (f *nvidiaFlags) open(
	ctx context.Context, config settings.Config, machine nvidia.Machine, flags daemon.Flags, log *slog.Logger,
) (*nvidia.Backend, error) {
	look := func() (*nvidia.Backend, error) { return nvidia.Open(config, machine, log) }
	if config.FailOnInitError {
		return look()
	}
	return awaitDriver(ctx, absence{nvidia.ErrNoDriver, f.recheck}, flags, log, look)
}

func (f *nvidiaFlags) machine(sys fs.FS, flags daemon.Flags) nvidia.Machine {
	return nvidia.Machine{
		Sys: sys, Proc: os.DirFS(f.procRoot), DevRoot: flags.DevRoot, CDIRoot: f.cdiRoot, Recheck: f.recheck,
	}
}
