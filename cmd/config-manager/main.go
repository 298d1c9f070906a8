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
	"syscall"

	"github.com/spf13/cobra"
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
			return o.check()
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := connection(o.kubeconfig)
			if err != nil {
				return err
			}
			labels, err := watchLabel(cmd.Context(), config, o.nodeName, o.nodeLabel)
			if err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			return (&keeper{options: o, proc: "/proc", log: log}).run(cmd.Context(), labels)
		},
	}
	cmd.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	o.register(cmd.Flags())
	return cmd
}

// connection returns the API server of a kubeconfig, or of the pod's service account.
func connection(kubeconfig string) (*rest.Config, error) {
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
