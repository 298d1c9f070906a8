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
	set.BoolVar(&o.oneshot, "oneshot", false, "look at the label once, and end")
	set.StringVar(&o.kubeconfig, "kubeconfig", "",
		"file that says where the API server is; without one the pod's service account does")
	set.StringVar(&o.nodeName, "node-name", "", "the node's name in Kubernetes")
	set.StringVar(&o.nodeLabel, "node-label", "nvidia.com/device-plugin.config",
		"label of the node that names a configuration")
	set.StringVar(&o.source, "config-file-srcdir", "", "folder with the configurations")
	set.StringVar(&o.target, "config-file-dst", "",
		"where the plugin reads its configuration; a link is made there")
	set.StringVar(&o.preset, "default-config", "", "configuration of a node without the label")
	set.StringSliceVar(&o.fallbacks, "fallback-strategies", nil,
		"what to try in this order where there is no --default-config either: named (the configuration that is "+
			"called default), single (the only one), empty (none)")
	set.BoolVar(&o.send, "send-signal", true, "send a signal to the plugin when its configuration has changed")
	set.IntVar(&o.signal, "signal", int(syscall.SIGHUP), "number of that signal")
	set.StringVar(&o.process, "process-to-signal", stockPlugin, "name of the plugin's process")
	set.BoolVar(&o.wait, "wait-on-error", false,
		"where a configuration cannot be put in place say why, leave what there is, and look again from time to "+
			"time and when the label changes, instead of ending with the error")
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
