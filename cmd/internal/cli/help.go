// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
	"github.com/tandem-k8s/tandem/cmd/internal/terminal"
)

// cobra's templates have no functions of a single command.
func init() { cobra.AddTemplateFunc("groups", plainflag.Usages) }

// usageTemplate returns cobra's template with the flags in groups, and the exit codes.
func usageTemplate(root *cobra.Command) string {
	const flags = "Flags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}"
	return strings.Replace(root.UsageTemplate(), flags, "{{groups .LocalFlags | trimTrailingWhitespaces}}", 1) +
		exitCodes
}

// foldHelp folds the help of all commands to the width of a terminal.
func foldHelp(root *cobra.Command) {
	write := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		target := Screen(cmd)
		if target.Width == 0 {
			write(cmd, args)
			return
		}
		var text bytes.Buffer
		cmd.SetOut(&text)
		write(cmd, args)
		cmd.SetOut(target.Out)
		_ = ShowHelp(target, text.String()) // an error of the terminal has no other place
	})
}

// ShowHelp writes a help page to a terminal. Examples stay whole, so that a person can copy them.
func ShowHelp(target terminal.Screen, help string) error {
	const heading, end = "\nExamples:\n", "\n\n"
	help, rest, found := strings.Cut(joinLines(help), heading)
	if err := target.Show([]byte(help), terminal.Verdicts{}); err != nil || !found {
		return err
	}
	examples, rest, _ := strings.Cut(rest, end)
	if _, err := io.WriteString(target.Out, heading+examples+end); err != nil {
		return err
	}
	return target.Show([]byte(rest), terminal.Verdicts{})
}

// joinLines makes each paragraph before the usage one line, without indented lines and lines after a colon.
func joinLines(help string) string {
	about, usage, _ := strings.Cut(help, "\nUsage:\n")
	lines := strings.SplitAfter(about, "\n")
	for i, line := range lines[:len(lines)-1] {
		next := strings.Trim(lines[i+1], "\n")
		if line != "\n" && next != "" && next[0] != ' ' && line[0] != ' ' && !strings.HasSuffix(line, ":\n") {
			lines[i] = strings.TrimSuffix(line, "\n") + " "
		}
	}
	return strings.Join(lines, "") + "\nUsage:\n" + usage
}
