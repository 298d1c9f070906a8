// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
	"github.com/tandem-k8s/tandem/coordination/spelling"
)

// cobra's templates have no functions of a single command.
func init() { cobra.AddTemplateFunc("groups", plainflag.Usages) }

// usageTemplate returns cobra's template with the flags in groups, and the exit codes.
func usageTemplate(root *cobra.Command) string {
	const flags = "Flags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}"
	return strings.Replace(root.UsageTemplate(), flags, "{{groups .LocalFlags | trimTrailingWhitespaces}}", 1) +
		exitCodes
}

// checkHelpTopic adds an error for an unknown command to cobra's command help.
func checkHelpTopic(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" {
			cmd.Args = func(_ *cobra.Command, args []string) error {
				found, rest, err := root.Find(args)
				if err == nil && len(rest) > 0 {
					err = usage("unknown command %q%s", rest[0], spelling.Question(rest[0], commands(found)))
				}
				return err
			}
		}
	}
}
