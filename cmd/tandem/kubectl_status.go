// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/cluster"
)

func newClusterStatus(o *cluster.Options) *cobra.Command {
	format := cli.OneOf(cli.AsTable, cli.AsJSON).Judging(statusVerdicts)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show free devices and problems of all nodes",
		Long: `Query Tandem's daemons on all nodes in parallel, and show a line for each node: the mode, the free GPUs and VFs, the number of
available pairs (a GPU and a VF on one switch), the number of containers with pairs on different switches, the version of the daemons,
and problems. If a node does not answer, its line shows the reason; it is an error if no node answers.

-o json includes the complete output of "tandem status -o json" for each node.`,
		Example: `  kubectl tandem status
  kubectl tandem status --context training -o json`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := connect(ofDaemons(o))
			if err != nil {
				return err
			}
			status, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			err = format.Write(cmd, status, status.Table)
			if err == nil && !slices.ContainsFunc(status.Nodes, cluster.NodeStatus.Answers) {
				err = errors.New("no node answers: the output has the reasons")
			}
			return err
		},
	}
	format.Register(cmd)
	return cmd
}
