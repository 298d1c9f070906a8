// SPDX-License-Identifier: Apache-2.0

// Package daemon has the common parts of the daemons' main functions: flags, logger, help page, signals and
// exit code.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/monitor"
	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
	"github.com/tandem-k8s/tandem/coordination/version"
)

// Exit codes.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

const exitCodes = `Exit codes:
  0  ended by SIGINT, SIGTERM or SIGQUIT
  1  failure: the last line on standard error names the reason and a remedy
  2  invalid command line
`

// Help is the text of a daemon's --help around the list of its flags, with the daemon's own exit code and
// signals.
type Help struct {
	About    string // purpose of the daemon
	Examples string // indented by two spaces

	ExitCodes string      // instead of the usual text
	BadUsage  int         // exit code for a wrong command line; 0 means 2
	Signals   []os.Signal // further signals that end the daemon
}

// Run runs a daemon. It returns when ctx is done or when the daemon cannot continue.
type Run func(ctx context.Context, log *slog.Logger) error

// Main is a daemon's main function: it parses the command line into set, which contains flags, runs the
// daemon until a signal or a failure, and exits.
func Main(set *pflag.FlagSet, flags *Flags, help Help, run Run) {
	signals := append([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT}, help.Signals...)
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	code := execute(ctx, set, os.Args[1:], os.Stdout, os.Stderr, flags, help, run)
	stop()
	os.Exit(code)
}

func execute(
	ctx context.Context, set *pflag.FlagSet, args []string, stdout, stderr io.Writer, flags *Flags, help Help,
	run Run,
) int {
	showVersion := set.Bool("version", false, "print the version and exit")
	set.SetOutput(io.Discard)
	set.SortFlags = false
	set.Usage = func() {}
	switch err := parse(set, args); {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprint(stdout, page(set, help))
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "%s: %v; see %s --help\n", set.Name(), err, set.Name())
		return cmp.Or(help.BadUsage, exitUsage)
	case *showVersion:
		fmt.Fprintln(stdout, set.Name(), version.Text())
		return exitOK
	}
	if flags.probe != monitor.NoProbe {
		if err := monitor.Ask(ctx, flags.Health, flags.probe); err != nil {
			fmt.Fprintf(stderr, "%s: %v\n", set.Name(), err)
			return exitError
		}
		return exitOK
	}
	flags.LogLevel = flags.glog.level(set, flags.LogLevel)
	log := flags.logger(stderr)
	log.Info("started", "version", version.Text(), "config", config(set))
	if err := flags.watched(ctx, set.Name(), log, run); err != nil && !stopped(ctx, err) {
		fmt.Fprintf(stderr, "%s: %v\n", set.Name(), err)
		return exitError
	}
	log.Info("stopped", "cause", context.Cause(ctx))
	return exitOK
}

// parse parses args. Like the stock plugins, it accepts one dash before a flag's name as well as two. The
// only names of one letter are -h, and -v in a set that has it.
func parse(set *pflag.FlagSet, args []string) error {
	doubled := make([]string, 0, len(args))
	for _, arg := range args {
		if name, one := strings.CutPrefix(arg, "-"); one && name != "" && name[0] != '-' &&
			(len(name) > 1 || set.Lookup(name) != nil) {
			arg = "-" + arg
		}
		doubled = append(doubled, arg)
	}
	if err := set.Parse(doubled); err != nil {
		return plainflag.Error(set, err)
	}
	if set.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	return nil
}

// stopped reports whether err means only that a signal ended ctx.
func stopped(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Canceled)
}

func page(set *pflag.FlagSet, help Help) string {
	return fmt.Sprintf("%s\n\nUsage:\n  %s [flags]\n\nExamples:\n%s\n\n%s\nThe flags of glog, "+
		"which manifests of the stock plugins set, are accepted too.\n\n%s",
		strings.TrimSpace(help.About), set.Name(), strings.Trim(help.Examples, "\n"), plainflag.Usages(set),
		cmp.Or(help.ExitCodes, exitCodes))
}

// config returns the effective configuration, one attribute per flag. Hidden flags are included only if they
// were set.
func config(set *pflag.FlagSet) slog.Value {
	var attributes []slog.Attr
	set.VisitAll(func(f *pflag.Flag) {
		if f.Name != "version" && (!f.Hidden || f.Changed) {
			attributes = append(attributes, slog.String(f.Name, f.Value.String()))
		}
	})
	return slog.GroupValue(attributes...)
}
