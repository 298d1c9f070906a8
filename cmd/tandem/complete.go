// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
	"github.com/tandem-k8s/tandem/spelling"
)

// values returns the completions of an argument or flag.
type values func(cmd *cobra.Command, typed string) ([]string, error)

// fixed returns constant completions.
func fixed(list ...string) values {
	return func(*cobra.Command, string) ([]string, error) { return list, nil }
}

// complete registers the completions of a flag.
func complete(cmd *cobra.Command, flag string, of values) {
	// The error means an unknown flag, which tests would detect.
	_ = cmd.RegisterFlagCompletionFunc(flag, of.completion())
}

// first completes the first and only argument of a command.
func first(of values) cobra.CompletionFunc {
	completion := of.completion()
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return completion(cmd, args, typed)
	}
}

// completion returns cobra's completion function. Errors mean no completions, as the shell shows no reason.
func (v values) completion() cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		list, err := v(cmd, typed)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return slices.Clone(list), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeMachines completes the flag --machine with the files of record and qualify.
func completeMachines(cmd *cobra.Command) {
	_ = cmd.MarkFlagFilename("machine", "txt", "json") // the error means an unknown flag
}

// describeCompletion adds examples to cobra's command for the completion of shells, and errors: cobra's
// command prints the help without an error for an unknown shell, and a shell that loads the output would run
// the examples. cobra's command writes to the output that root has at this time.
func describeCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Use, cmd.Args, cmd.RunE = "completion SHELL", cobra.ArbitraryArgs, unknownShell
			for _, shell := range cmd.Commands() {
				shell.Args = noArguments
			}
			cmd.Short = "Print the completion for a shell"
			cmd.Long = `Print the completion of commands, flags and values for a shell. The packages install it for bash, zsh and fish.
bash needs the package bash-completion. kubectl completes "kubectl tandem" by itself, if kubectl_complete-tandem, a link to
tandem, is in PATH.`
			cmd.Example = `  source <(tandem completion bash)
  tandem completion bash | sudo tee /etc/bash_completion.d/tandem
  tandem completion zsh >"${fpath[1]}/_tandem"
  tandem completion fish >~/.config/fish/completions/tandem.fish`
		}
	}
}

// unknownShell returns the error of a command line without the name of a known shell.
func unknownShell(cmd *cobra.Command, args []string) error {
	shells := commands(cmd)
	if len(args) == 0 {
		return usage("want a shell: %s", plainflag.List(shells))
	}
	return usage("unknown shell %q: want %s%s", args[0], plainflag.List(shells),
		spelling.Question(args[0], shells))
}
