// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"

	"github.com/spf13/cobra"
)

// values are what can be typed at some place of a command line, given what is typed of it so far.
type values func(cmd *cobra.Command, typed string) ([]string, error)

// fixed are values that are always the same.
func fixed(list ...string) values {
	return func(*cobra.Command, string) ([]string, error) { return list, nil }
}

// complete says what a flag can be, for the shell's completion.
func complete(cmd *cobra.Command, flag string, of values) {
	// It fails where the command has no such flag, which a test would show.
	_ = cmd.RegisterFlagCompletionFunc(flag, of.completion())
}

// first completes the first argument of a command; there is no second one.
func first(of values) cobra.CompletionFunc {
	completion := of.completion()
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return completion(cmd, args, typed)
	}
}

// completion is what cobra asks. The shell completes nothing where the values cannot be had: nobody reads
// why.
func (v values) completion() cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		list, err := v(cmd, typed)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return slices.Clone(list), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeMachines has the shell complete recorded machines, which are text files.
func completeMachines(cmd *cobra.Command) {
	_ = cmd.MarkFlagFilename("machine", "txt") // it fails where there is no such flag
}
