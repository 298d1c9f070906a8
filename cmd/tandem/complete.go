// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"

	"github.com/spf13/cobra"
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

// describeCompletion adds examples to cobra's command for the completion of shells. cobra's command writes to
// the output that root has at this time.
func describeCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Short = "Print the completion for a shell"
			cmd.Long = `Print the completion of commands, flags and values for a shell. The packages install it for bash, zsh and fish.
bash needs the package bash-completion. kubectl completes "kubectl tandem" by itself, if kubectl_complete-tandem, a link to
tandem, is in PATH.`
			cmd.Args = knownCommand
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			cmd.Example = `  source <(tandem completion bash)
  tandem completion bash | sudo tee /etc/bash_completion.d/tandem
  tandem completion zsh >"${fpath[1]}/_tandem"
  tandem completion fish >~/.config/fish/completions/tandem.fish`
		}
	}
}
