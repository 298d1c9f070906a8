// SPDX-License-Identifier: Apache-2.0

// Command tandem-lab tries Tandem without hardware and cluster: it runs the plugins on a recorded machine,
// and compares placement strategies on random containers. No node needs it.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
)

func main() { os.Exit(cli.Execute(newRoot(), os.Args[1:], os.Stdout, os.Stderr)) }

func newRoot() *cobra.Command {
	root := cli.CompleteRoot(&cobra.Command{
		Use:   "tandem-lab",
		Short: "Try Tandem without hardware and cluster",
	})
	root.AddCommand(newPlay(), newSimulate())
	return root
}
