// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/tandem/cluster"
)

func newClusterStatus(o *cluster.Options) *cobra.Command {
	format := oneOf(asTable, asJSON)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show all nodes: what is free, and what is not as it should be",
		Long: `Ask Tandem's daemons on all nodes how they are, at the same time, and show a line for each node: its mode, the GPUs and VFs that
are free, how many pairs of a GPU and a VF on one switch these still make, containers that did not get such pairs, the daemons' version, and what
is not as it should be. A node that does not answer has its line too, with the reason.

With -o json every node has all that "tandem status -o json" prints there.`,
		Example: `  kubectl tandem status
  kubectl tandem status --context training -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := connect(ofDaemons(o))
			if err != nil {
				return err
			}
			status, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			return format.write(cmd.OutOrStdout(), status, status.Table)
		},
	}
	format.register(cmd)
	return cmd
}
