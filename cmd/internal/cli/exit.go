// SPDX-License-Identifier: Apache-2.0

// Package cli is the frame of the command lines for people: help, completion, formats of output, exit codes.
package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// Exit codes of all commands; a FoundError adds others.
const (
	ExitOK    = 0
	ExitError = 1
	ExitUsage = 2
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

// Usage returns an error of the command line.
func Usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// NoArguments checks the arguments of commands without arguments.
func NoArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage("unexpected argument %q", args[0])
	}
	return nil
}
