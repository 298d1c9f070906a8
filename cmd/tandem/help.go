// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
)

// cobra's templates have no functions of a single command.
func init() { cobra.AddTemplateFunc("groups", plainflag.Usages) }

// usageTemplate returns cobra's template with the flags in groups, and the exit codes.
func usageTemplate(root *cobra.Command) string {
	const flags = "Flags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}"
	return strings.Replace(root.UsageTemplate(), flags, "{{groups .LocalFlags | trimTrailingWhitespaces}}", 1) +
		exitCodes
}
