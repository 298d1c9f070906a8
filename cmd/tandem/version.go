// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/tandem/document"
)

// newVersion returns a command with more than --version: the source, Go and the platform.
func newVersion() *cobra.Command {
	format := oneOf(asTable, asJSON)
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, commit, Go version and platform",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, _ := debug.ReadBuildInfo()
			build := document.NewBuild(cmd.Root().Name(), info)
			return format.write(cmd, build, build.Table)
		},
	}
	format.register(cmd)
	return cmd
}
