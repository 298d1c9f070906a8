// SPDX-License-Identifier: Apache-2.0

// Package cli is the frame of the command lines for people: help, completion, formats of output with their
// version, counted nouns, exit codes.
//
// A command writes a [Text]: lines, and rows of tables. Lines and columns are folded to the width of the
// terminal, and parts with a [Verdict] have a colour; programs, which read a pipe or a file, get neither.
// Foreign texts are made safe to print: device names of a recording, annotations, object names and other
// programs' output may contain terminal escape sequences, and characters that change the direction of text.
package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
	"github.com/tandem-k8s/tandem/coordination/spelling"
	"github.com/tandem-k8s/tandem/coordination/version"
)

// Execute runs one command and returns its exit code. The output is printable: foreign text cannot control
// the terminal.
func Execute(root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	stdout, stderr = NewPrintableWriter(stdout), NewPrintableWriter(stderr)
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args
	root.SetOut(stdout)
	root.SetErr(stderr)
	completeCommands(root)
	command, err := root.ExecuteC()
	var wrong usageError
	var found FoundError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &found):
		return int(found)
	case errors.As(err, &wrong):
		fmt.Fprintf(stderr, "%s: %v; see %[1]s --help\n", command.CommandPath(), err)
		return ExitUsage
	default:
		fmt.Fprintf(stderr, "%s: %v\n", command.CommandPath(), err)
		return ExitError
	}
}

// CompleteRoot adds the parts that all programs have in common to a root command.
func CompleteRoot(root *cobra.Command) *cobra.Command {
	root.Version = version.Text()
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Args = knownCommand
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{plainflag.Error(cmd.Flags(), err)}
	})
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n") // the daemons' format
	root.SetUsageTemplate(root.UsageTemplate() + exitCodes)
	registerColour(root)
	return root
}

// knownCommand rejects arguments of a command that has subcommands: none of them has this name.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return NewUsageError("unknown command %q%s", args[0], spelling.Question(args[0], commandNames(cmd)))
	}
	return nil
}

// completeCommands completes cobra's commands: help rejects a command that it does not find, and completion
// has examples and errors.
func completeCommands(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Args = func(_ *cobra.Command, args []string) error {
				found, rest, err := root.Find(args)
				if err != nil {
					return err
				}
				return knownCommand(found, rest)
			}
		case "completion":
			describeCompletion(root, cmd)
		}
	}
}

// registerColour adds the flag --color of all commands.
func registerColour(root *cobra.Command) {
	modes := []string{auto, always, never}
	plainflag.Choice(root.PersistentFlags(), new(string), Colour, auto,
		"colours in the text for people: auto (on a terminal, unless NO_COLOR is set), always or never",
		modes...)
	CompleteFlag(root, Colour, FixedValues(modes...))
}

// Colour is the flag in the spelling of other programs.
const Colour = "color"

// ColourMode returns the value of the flag.
func ColourMode(cmd *cobra.Command) string { return cmd.Flag(Colour).Value.String() }

// commandNames returns the names of the commands that the help lists.
func commandNames(root *cobra.Command) (names []string) {
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() {
			names = append(names, cmd.Name())
		}
	}
	return names
}

// Exit codes: of all commands; of commands that judge, after printed findings, as [FoundError].
const (
	ExitOK      = 0
	ExitError   = 1
	ExitUsage   = 2
	ExitFound   = 3
	ExitUnknown = 4 // nothing but unknown results
)

// MoreExitCodes is the annotation of a command with its additional exit codes, for the help text.
const MoreExitCodes = "exit codes"

const exitCodes = `
Exit codes:
  0  success
  1  failure: the last line on standard error names the reason
  2  invalid command line
{{index .Annotations "` + MoreExitCodes + `"}}`

// usageError is an error of the command line.
type usageError struct{ error }

// FoundError is the exit code after printed findings.
type FoundError int

func (FoundError) Error() string { return "there are findings" }

// NewUsageError returns an error of the command line.
func NewUsageError(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// NoArguments checks the arguments of commands without arguments.
func NoArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return NewUsageError("unexpected argument %q", args[0])
	}
	return nil
}

// Values returns the completions of an argument or flag.
type Values func(cmd *cobra.Command, typed string) ([]string, error)

// FixedValues returns constant completions.
func FixedValues(list ...string) Values {
	return func(*cobra.Command, string) ([]string, error) { return list, nil }
}

// CompleteFlag registers the completions of a flag.
func CompleteFlag(cmd *cobra.Command, flag string, of Values) {
	// The error means an unknown flag, which tests would detect.
	_ = cmd.RegisterFlagCompletionFunc(flag, of.completionFunc())
}

// CompleteFirst completes the first and only argument of a command.
func CompleteFirst(of Values) cobra.CompletionFunc {
	completion := of.completionFunc()
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return completion(cmd, args, typed)
	}
}

// completionFunc returns cobra's completion function. Errors mean no completions, as the shell shows no
// reason.
func (v Values) completionFunc() cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		list, err := v(cmd, typed)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return slices.Clone(list), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteMachines completes the flag --machine with the files of record and qualify.
func CompleteMachines(cmd *cobra.Command) {
	_ = cmd.MarkFlagFilename("machine", "txt", "json") // the error means an unknown flag
}

// AboutCompletion is the annotation of a root command with more about its completion, for the help text.
const AboutCompletion = "completion"

// describeCompletion adds examples to cobra's command for the completion of shells, and errors: cobra's
// command prints the help without an error for an unknown shell, and a shell that loads the output would run
// the examples. cobra's command writes to the output that root has at this time.
func describeCompletion(root, cmd *cobra.Command) {
	cmd.Use, cmd.Args, cmd.RunE = "completion SHELL", cobra.ArbitraryArgs, unknownShell
	for _, shell := range cmd.Commands() {
		shell.Args = NoArguments
	}
	cmd.Short = "Print the completion for a shell"
	cmd.Long = "Print the completion of commands, flags and values for a shell." +
		root.Annotations[AboutCompletion]
	cmd.Example = strings.ReplaceAll(`  source <(NAME completion bash)
  NAME completion bash | sudo tee /etc/bash_completion.d/NAME
  NAME completion zsh >"${fpath[1]}/_NAME"
  NAME completion fish >~/.config/fish/completions/NAME.fish`, "NAME", root.Name())
}

// unknownShell returns the error of a command line without the name of a known shell.
func unknownShell(cmd *cobra.Command, args []string) error {
	shells := commandNames(cmd)
	if len(args) == 0 {
		return NewUsageError("want a shell: %s", spelling.List(shells))
	}
	return NewUsageError("unknown shell %q: want %s%s", args[0], spelling.List(shells),
		spelling.Question(args[0], shells))
}
