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

// NVIDIA are the flags of NVIDIA's own plugin, and what it has no flag for.
type NVIDIA struct {
	Stock    *settings.Flags
	procRoot string
	CDIRoot  string        // where CDI specifications are written
	Recheck  time.Duration // between two looks at a GPU that is broken, or for a driver that is not there
}

// Register adds the flags to two sets: ours, and those of NVIDIA's own plugin.
func (f *NVIDIA) Register(own, stock *pflag.FlagSet) {
	f.Stock = settings.Register(stock)
	own.StringVar(&f.procRoot, "proc-root", "/proc", "folder to read the device nodes of MIG devices from")
	own.StringVar(&f.CDIRoot, "cdi-root", "/var/run/cdi", "folder of the CDI specifications that are written")
	f.Recheck = recheck
	own.Var((*pause)(&f.Recheck), "nvidia-recheck", "time between two looks at an NVIDIA GPU that is broken, "+
		"healthy ones are not looked at, or for a driver that is not there, AMD's too")
}

// Unread says that the file of a flag is not read, for GPUs that are not NVIDIA's. One that is not there is a
// mistake all the same.
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

// Machine is where the node's files are.
func (f *NVIDIA) Machine(sys fs.FS, flags daemon.Flags) nvidia.Machine {
	return nvidia.Machine{
		Sys: sys, Proc: os.DirFS(f.procRoot), DevRoot: flags.DevRoot, CDIRoot: f.CDIRoot, Recheck: f.Recheck,
	}
}
