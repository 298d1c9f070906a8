// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/document"
)

// newVersion returns a command with more than --version: the source, Go and the platform.
func newVersion() *cobra.Command {
	format := cli.OneOf(cli.AsTable, cli.AsJSON)
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, commit, Go version and platform",
		Args:  cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, _ := debug.ReadBuildInfo()
			build := document.NewBuild(cmd.Root().Name(), info)
			return format.Write(cmd, build, build.Table)
		},
	}
	format.Register(cmd)
	return cmd
}
