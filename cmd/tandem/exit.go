// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// Exit codes. exitFound is of plan and doctor, exitUnknown of doctor alone.
const (
	exitOK      = 0
	exitError   = 1
	exitUsage   = 2
	exitFound   = 3
	exitUnknown = 4
)

// moreExitCodes is the annotation of a command with its additional exit codes, for the help text.
const moreExitCodes = "exit codes"

const exitCodes = `
Exit codes:
  0  success
  1  failure: the last line on standard error names the reason
  2  invalid command line
{{index .Annotations "` + moreExitCodes + `"}}`

// usageError is an error of the command line.
type usageError struct{ error }

// foundError is the exit code after printed findings.
type foundError struct{ code int }

func (foundError) Error() string { return "there are findings" }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// noArguments checks the arguments of commands without arguments.
func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("unexpected argument %q", args[0])
	}
	return nil
}
