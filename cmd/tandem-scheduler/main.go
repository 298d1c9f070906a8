// SPDX-License-Identifier: Apache-2.0

// Command tandem-scheduler is kube-scheduler with the plugin Tandem: it avoids nodes whose kubelet would
// refuse the pod, and prefers nodes on which the pod's GPUs and VFs share switches.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // the log format "json"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of the client
	_ "k8s.io/component-base/metrics/prometheus/version"  // the metric of the version
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"github.com/tandem-k8s/tandem/cmd/tandem-scheduler/plugin"
)

func main() {
	os.Exit(cli.Run(newCommand()))
}

// newCommand corresponds to app.NewSchedulerCommand, whose run function cannot be extended between the
// creation of the scheduler and its start. The plugin and the scheduler's queueing hints share one informer,
// which the scheduler creates.
func newCommand() *cobra.Command {
	opts := options.NewOptions()
	cmd := &cobra.Command{
		Use:               "kube-scheduler",
		Long:              "kube-scheduler with the plugin " + plugin.Name + ".",
		Args:              noArguments,
		PersistentPreRunE: func(*cobra.Command, []string) error { return opts.ComponentGlobalsRegistry.Set() },
		RunE:              func(cmd *cobra.Command, _ []string) error { return start(cmd, opts) },
	}
	flags := opts.Flags
	verflag.AddFlags(flags.FlagSet("global"))
	globalflag.AddGlobalFlags(flags.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, set := range flags.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	columns, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, *flags, columns)
	return cmd
}

func noArguments(cmd *cobra.Command, arguments []string) error {
	for _, a := range arguments {
		if a != "" {
			return fmt.Errorf("%q takes no arguments, got %q", cmd.CommandPath(), arguments)
		}
	}
	return nil
}

// start corresponds to runCommand of the same package: it sets up logs and metrics, then runs the scheduler
// until a signal.
func start(cmd *cobra.Command, opts *options.Options) error {
	verflag.PrintAndExitIfRequested()
	gates := opts.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	if err := logsapi.ValidateAndApply(opts.Logs, gates); err != nil {
		return fmt.Errorf("set up logs: %w", err)
	}
	cliflag.PrintFlags(cmd.Flags())
	if err := nameInformers(opts); err != nil {
		return err
	}
	return run(genericapiserver.SetupSignalContext(), opts, func() {
		gates.(featuregate.MutableFeatureGate).AddMetrics()
		opts.ComponentGlobalsRegistry.AddMetrics()
	})
}

func run(ctx context.Context, opts *options.Options, ready func()) error {
	var objects plugin.Objects
	config, scheduler, err := app.Setup(ctx, opts, app.WithPlugin(plugin.Name, objects.New))
	if err != nil {
		return err
	}
	if err := objects.Watch(ctx, config.DynInformerFactory); err != nil {
		return err
	}
	legacyregistry.RawMustRegister(objects.Metric())
	ready()
	return app.Run(ctx, config, scheduler)
}
