package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/daemon"
	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
)

// Exit codes; the last two are doctor's.
const (
	exitOK      = 0
	exitError   = 1
	exitUsage   = 2
	exitFound   = 3
	exitUnknown = 4
)

// moreExitCodes is the annotation of a command that has exit codes of its own, for its help.
const moreExitCodes = "exit codes"

const exitCodes = `
Exit codes:
  0  done
  1  cannot be done: the last line on standard error says why
  2  the command line is wrong
{{index .Annotations "` + moreExitCodes + `"}}`

// usageError is an error of the command line.
type usageError struct{ error }

// foundError says that doctor has printed findings, and with which exit code it ends.
type foundError struct{ code int }

func (foundError) Error() string { return "there are findings" }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// execute runs one command and returns its exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args
	root.SetOut(stdout)
	root.SetErr(stderr)
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
	root := &cobra.Command{
		Use:           "tandem",
		Short:         "Show, record and plan GPUs and RDMA VFs on the same PCIe switch",
		Version:       daemon.Version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("unknown command %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{plainflag.Error(err)} })
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n") // as the daemons print it
	root.SetUsageTemplate(root.UsageTemplate() + exitCodes)
	root.AddCommand(newTopo(), newRecord(), newPlan(), newStatus(), newExplain(), newVerify(), newDoctor(), newSimulate())
	return root
}

// noArguments is for commands that have flags only.
func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("unexpected argument %q", args[0])
	}
	return nil
}
