// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
)

// options are the flags of NVIDIA's config-manager.
type options struct {
	oneshot    bool
	kubeconfig string
	nodeName   string
	nodeLabel  string
	source     string
	target     string
	preset     string
	fallbacks  []string
	send       bool
	signal     int
	process    string
	wait       bool
}

func (o *options) register(set *pflag.FlagSet) {
	set.SortFlags = false
	set.BoolVar(&o.oneshot, "oneshot", false, "apply the label's value once and exit")
	set.StringVar(&o.kubeconfig, "kubeconfig", "",
		"kubeconfig file for the API server (default the in-cluster configuration)")
	set.StringVar(&o.nodeName, "node-name", "", "name of the Node object")
	set.StringVar(&o.nodeLabel, "node-label", "nvidia.com/device-plugin.config",
		"node label whose value is the name of a configuration")
	set.StringVar(&o.source, "config-file-srcdir", "", "folder of the configurations")
	set.StringVar(&o.target, "config-file-dst", "",
		"path at which the plugin reads its configuration; created as a symbolic link")
	set.StringVar(&o.preset, "default-config", "", "name of the configuration for nodes without the label")
	set.StringSliceVar(&o.fallbacks, "fallback-strategies", nil,
		"fallbacks, in order, without label and --default-config: named (the configuration with the name "+
			"default), single (the only configuration), empty (no configuration)")
	set.BoolVar(&o.send, "send-signal", true, "send a signal to the plugin after a change of the configuration")
	set.IntVar(&o.signal, "signal", int(syscall.SIGHUP), "number of the signal")
	set.StringVar(&o.process, "process-to-signal", stockPlugin, "name of the plugin's process")
	set.BoolVar(&o.wait, "wait-on-error", false,
		"on an error, keep the current configuration and retry every 30 seconds and after each change of "+
			"the label, instead of exiting")
}

// fromEnvironment sets the flags that are not on the command line from their variables. An empty variable
// counts as unset.
func fromEnvironment(set *pflag.FlagSet, env func(string) (string, bool)) error {
	var problem error
	set.VisitAll(func(f *pflag.Flag) {
		variable := strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, there := env(variable)
		if problem != nil || f.Changed || !there || value == "" ||
			slices.Contains([]string{"help", "version"}, f.Name) {
			return
		}
		if err := set.Set(f.Name, value); err != nil {
			problem = fmt.Errorf("read $%s: %w", variable, err)
		}
	})
	return problem
}

func (o *options) check() error {
	for _, needed := range []struct{ flag, value string }{
		{"node-name", o.nodeName}, {"node-label", o.nodeLabel},
		{"config-file-srcdir", o.source}, {"config-file-dst", o.target},
	} {
		if needed.value == "" {
			return fmt.Errorf("--%s is empty: it has to be given", needed.flag)
		}
	}
	return nil
}
