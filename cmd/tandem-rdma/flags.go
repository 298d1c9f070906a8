// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
	"github.com/tandem-k8s/tandem/cmd/internal/vfs"
	"github.com/tandem-k8s/tandem/plugins/rdma/grants"
)

// options are the daemon's own flags.
type options struct {
	vfs.Flags
	useCDI     bool
	cdiDevices bool
	cdiDirs    []string
	logDir     string
}

func (o *options) register(set *pflag.FlagSet) {
	o.Register(set, "amd-exporter-socket")
	set.BoolVar(&o.useCDI, "use-cdi", false,
		"add device nodes to containers through CDI annotations")
	set.BoolVar(&o.cdiDevices, "cdi-devices", false,
		"with --use-cdi, use the CDIDevices field instead of annotations; requires kubelet 1.31 or later")
	set.StringSliceVar(&o.cdiDirs, "cdi-dirs", grants.CDIDirs,
		"folders of CDI specs; specs are written to the last folder")
	plainflag.VF.Put(set, "use-cdi", "cdi-devices", "cdi-dirs")
	o.registerStock(set)
}

// registerStock adds the flags of the stock plugin's entrypoint.sh, except those of glog.
func (o *options) registerStock(set *pflag.FlagSet) {
	set.StringVar(&o.logDir, "log-dir", "",
		"ignored; accepted for compatibility with the stock plugin, since logs go to standard error")
	plainflag.Logging.Put(set, "log-dir")
	// Entrypoint and plugin share --log-level; this flag also accepts words.
	level := set.Lookup("log-level")
	level.Value = verbosity{level.Value}
	for _, name := range []string{"resource-prefix", "config-file"} {
		flag := set.Lookup(name)
		flag.Value = orPreset{flag.Value, flag.DefValue}
	}
}

// orPreset treats an empty value as unset: the entrypoint passes only flags that are not empty.
type orPreset struct {
	pflag.Value
	preset string
}

// Set takes a value, or the preset.
func (o orPreset) Set(text string) error { return o.Value.Set(cmp.Or(text, o.preset)) }

// verbosity accepts numbers as well as words: the manifests of the stock plugin, and its entrypoint by
// default, pass --log-level=10. Every number means info.
type verbosity struct{ pflag.Value }

// Set reads a number or a word.
func (v verbosity) Set(text string) error {
	if _, err := strconv.ParseUint(text, 10, 31); err == nil {
		text = slog.LevelInfo.String()
	}
	if err := v.Value.Set(text); err != nil {
		return fmt.Errorf("%w, or a number", err)
	}
	return nil
}
