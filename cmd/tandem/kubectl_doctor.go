// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/cluster"
)

func newClusterDoctor(o *cluster.Options) *cobra.Command {
	format, cpus := cli.OneOf(cli.AsTable, cli.AsJSON).Judging(doctorVerdicts), 0
	cmd := &cobra.Command{
		Use:   "doctor NODE",
		Short: "Find problems that prevent GPUs and VFs on the same switch on a node",
		Long: `Run "tandem doctor" in the pod of a daemon on the node, with the pods that the kubelet rejected, and with the kubelet's
configuration from the API server if you have permission for nodes/proxy. Files outside the daemon's pod are reported as unknown. The
command changes nothing.`,
		Example: `  kubectl tandem doctor gpu-17
  kubectl tandem doctor gpu-17 --cpus 16
  kubectl tandem doctor gpu-17 -o json`,
		Annotations: map[string]string{cli.MoreExitCodes: doctorExitCodes},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usage("want one node: NODE")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if cpus < 0 {
				return cli.Usage("--cpus %d: want 0 or more", cpus)
			}
			c, err := connect(ofDaemons(o))
			if err != nil {
				return err
			}
			printed, notes, err := c.Doctor(cmd.Context(), args[0], cpus, format.Format)
			for _, note := range notes {
				fmt.Fprintln(cmd.ErrOrStderr(), "note:", note)
			}
			var exit *cluster.ExitError
			if errors.As(err, &exit) && (exit.Code == exitFound || exit.Code == exitUnknown) && len(printed) > 0 {
				err = cli.FoundError(exit.Code)
			}
			if failed := format.Show(cmd, printed); failed != nil {
				return failed
			}
			return err
		},
		ValidArgsFunction: cli.First(func(cmd *cobra.Command, typed string) ([]string, error) {
			return nodes(ofDaemons(o))(cmd, typed)
		}),
	}
	cmd.Flags().IntVar(&cpus, "cpus", 0, "exclusive CPUs that containers request in addition to GPUs and VFs")
	format.Register(cmd)
	return cmd
}

// nodes completes the names of nodes with a daemon.
func nodes(o *cluster.Options) cli.Values {
	return func(cmd *cobra.Command, _ string) ([]string, error) {
		c, err := connect(o)
		if err != nil {
			return nil, err
		}
		daemons, err := c.Daemons(cmd.Context())
		return slices.Sorted(maps.Keys(daemons)), err
	}
}
