// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
	"github.com/tandem-k8s/tandem/coordination/spelling"
)

// Values returns the completions of an argument or flag.
type Values func(cmd *cobra.Command, typed string) ([]string, error)

// Fixed returns constant completions.
func Fixed(list ...string) Values {
	return func(*cobra.Command, string) ([]string, error) { return list, nil }
}

// Complete registers the completions of a flag.
func Complete(cmd *cobra.Command, flag string, of Values) {
	// The error means an unknown flag, which tests would detect.
	_ = cmd.RegisterFlagCompletionFunc(flag, of.completion())
}

// First completes the first and only argument of a command.
func First(of Values) cobra.CompletionFunc {
	completion := of.completion()
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return completion(cmd, args, typed)
	}
}

// completion returns cobra's completion function. Errors mean no completions, as the shell shows no reason.
func (v Values) completion() cobra.CompletionFunc {
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
func describeCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
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
	}
}

// unknownShell returns the error of a command line without the name of a known shell.
func unknownShell(cmd *cobra.Command, args []string) error {
	shells := Commands(cmd)
	if len(args) == 0 {
		return Usage("want a shell: %s", plainflag.List(shells))
	}
	return Usage("unknown shell %q: want %s%s", args[0], plainflag.List(shells),
		spelling.Question(args[0], shells))
}
