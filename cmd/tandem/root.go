// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
	"github.com/tandem-k8s/tandem/cmd/internal/printable"
	"github.com/tandem-k8s/tandem/cmd/tandem/terminal"
	"github.com/tandem-k8s/tandem/spelling"
	"github.com/tandem-k8s/tandem/version"
)

// execute runs one command and returns its exit code. The output is printable: foreign text cannot control
// the terminal.
func execute(root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	stdout, stderr = printable.NewWriter(stdout), printable.NewWriter(stderr)
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args
	root.SetOut(stdout)
	root.SetErr(stderr)
	describeCompletion(root)
	checkHelp(root)
	command, err := root.ExecuteC()
	var wrong usageError
	var found foundError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &found):
		return found.code
	case errors.As(err, &wrong):
		fmt.Fprintf(stderr, "%s: %v; see %[1]s --help\n", command.CommandPath(), err)
		return exitUsage
	default:
		fmt.Fprintf(stderr, "%s: %v\n", command.CommandPath(), err)
		return exitError
	}
}

func newRoot() *cobra.Command {
	root := rooted(&cobra.Command{
		Use:   "tandem",
		Short: "Show, record and plan GPUs and RDMA VFs on the same PCIe switch",
		Long: `Show, record and plan GPUs and RDMA VFs on the same PCIe switch.

"tandem completion SHELL" prints the completion of commands, flags and values for bash, zsh, fish or powershell; to load it in bash:
source <(tandem completion bash)`,
	})
	root.AddCommand(newTopo(), newRecord(), newQualify(), newPlan(), newStatus(), newExplain(), newVerify(),
		newDoctor(), newSimulate(), newPlay(), newVersion())
	return root
}

// rooted adds the common parts of both programs, tandem and kubectl-tandem, to a root command.
func rooted(root *cobra.Command) *cobra.Command {
	root.Version = version.Text()
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Args = knownCommand
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{plainflag.Error(cmd.Flags(), err)}
	})
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n") // the daemons' format
	root.SetUsageTemplate(usageTemplate(root))
	registerColour(root)
	foldHelp(root)
	return root
}

// knownCommand rejects arguments of a command that has subcommands: none of them has this name.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("unknown command %q%s", args[0], spelling.Question(args[0], commands(cmd)))
	}
	return nil
}

// checkHelp rejects a command that cobra's command help does not find.
func checkHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" {
			cmd.Args = func(_ *cobra.Command, args []string) error {
				found, rest, err := root.Find(args)
				if err != nil {
					return err
				}
				return knownCommand(found, rest)
			}
		}
	}
}

// registerColour adds the flag --color of all commands.
func registerColour(root *cobra.Command) {
	modes := []string{terminal.Auto, terminal.Always, terminal.Never}
	plainflag.Choice(root.PersistentFlags(), new(string), colour, terminal.Auto,
		"colours in the text for people: auto (on a terminal, unless NO_COLOR is set), always or never",
		modes...)
	complete(root, colour, fixed(modes...))
}

// colour is the flag in the spelling of other programs.
const colour = "color"

func colourMode(cmd *cobra.Command) string { return cmd.Flag(colour).Value.String() }

// commands returns the names of the commands that the help lists.
func commands(root *cobra.Command) (names []string) {
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() {
			names = append(names, cmd.Name())
		}
	}
	return names
}
