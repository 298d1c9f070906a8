// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/daemon"
	"github.com/tandem-k8s/tandem/plugins/gpu/nvidia"
	"github.com/tandem-k8s/tandem/plugins/gpu/nvidia/settings"
)

// NVIDIA are the flags of NVIDIA's own plugin and Tandem's additions.
type NVIDIA struct {
	Stock    *settings.Flags
	procRoot string
	CDIRoot  string        // folder for CDI specs
	Recheck  time.Duration // interval between two looks at a broken GPU or for an absent driver
}

// Register adds Tandem's flags to own and those of NVIDIA's plugin to stock.
func (f *NVIDIA) Register(own, stock *pflag.FlagSet) {
	f.Stock = settings.Register(stock)
	own.StringVar(&f.procRoot, "proc-root", "/proc", "folder to read the device nodes of MIG devices from")
	own.StringVar(&f.CDIRoot, "cdi-root", "/var/run/cdi", "folder of the CDI specifications that are written")
	f.Recheck = recheck
	own.Var((*pause)(&f.Recheck), "nvidia-recheck", "time between two looks at an NVIDIA GPU that is broken, "+
		"healthy ones are not looked at, or for a driver that is not there, AMD's too")
}

// Unread logs that the file of a flag is not used, because the GPUs are not NVIDIA's. Unread returns an error
// if the file is missing.
func (f *NVIDIA) Unread(flag string, log *slog.Logger) error {
	file := f.Stock.File()
	if file == "" {
		return nil
	}
	if _, err := os.Stat(file); err != nil {
		return fmt.Errorf("use %s, which is for NVIDIA GPUs: %w", flag, err)
	}
	log.Warn("the configuration file is not read: it is for NVIDIA GPUs", "file", file)
	return nil
}

// Machine returns the paths of the node's files.
func (f *NVIDIA) Machine(sys fs.FS, flags daemon.Flags) nvidia.Machine {
	return nvidia.Machine{
		Sys: sys, Proc: os.DirFS(f.procRoot), DevRoot: flags.DevRoot, CDIRoot: f.CDIRoot, Recheck: f.Recheck,
	}
}
