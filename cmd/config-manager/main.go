// SPDX-License-Identifier: Apache-2.0

// Command config-manager keeps the configuration of a node's plugin in step with a label of the node. It
// replaces NVIDIA's command of the same name in the GPU operator and in NVIDIA's chart: flags, variables and
// effects are the same (cmd/config-manager in NVIDIA/k8s-device-plugin). Tandem's chart runs it next to
// either plugin.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tandem-k8s/tandem/coordination/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	cmd := newCommand(os.LookupEnv)
	err := cmd.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "config-manager:", err)
		os.Exit(1)
	}
}

func newCommand(env func(string) (string, bool)) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "config-manager",
		Short: "Select a plugin's configuration by a node label",
		Long: `Select the configuration of tandem-gpu or tandem-rdma by a node label: create a symbolic link to the configuration, and send the
plugin a signal when the label changes. Each flag also has an environment variable, for example NODE_NAME for --node-name.`,
		Version: version.Text(),
		Args:    cobra.NoArgs,
		// The last line on standard error names the error.
		SilenceUsage: true, SilenceErrors: true,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnvironment(cmd.Flags(), env); err != nil {
				return err
			}
			return o.checkFlags()
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := findServer(o.kubeconfig)
			if err != nil {
				return err
			}
			labels, err := watchLabel(cmd.Context(), config, o.nodeName, o.nodeLabel)
			if err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			return (&keeper{options: o, proc: "/proc", log: log}).runUntilDone(cmd.Context(), labels)
		},
	}
	cmd.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	o.registerFlags(cmd.Flags())
	return cmd
}

// findServer returns the API server of a kubeconfig, or of the pod's service account.
func findServer(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("find the API server: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("use --kubeconfig: %w", err)
	}
	return config, nil
}

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

func (o *options) registerFlags(set *pflag.FlagSet) {
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

func (o *options) checkFlags() error {
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
