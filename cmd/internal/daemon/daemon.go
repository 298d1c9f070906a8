// SPDX-License-Identifier: Apache-2.0

// Package daemon has the common parts of the daemons' main functions: flags, logger, help page, signals and
// exit code, and the state of a daemon (monitor.go): Prometheus metrics on /metrics, liveness on /healthz and
// registration with the kubelet on /readyz, and Kubernetes Events (events.go). The monitor is the observer of
// coordination and deviceplugin, and reads their state on each request. Nothing is served without an address.
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
	"sync"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
	"github.com/tandem-k8s/tandem/coordination/version"
)

// Exit codes.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

// Help is the text of a daemon's --help around the list of its flags, with the daemon's own exit code and
// signals.
type Help struct {
	About    string // purpose of the daemon
	Examples string // indented by two spaces

	ExitCodes string      // as text
	BadUsage  int         // exit code for a wrong command line; 0 means 2
	Signals   []os.Signal // further signals that end the daemon
}

// runDaemon runs a daemon. It returns when ctx is done or when the daemon cannot continue.
type runDaemon func(ctx context.Context, log *slog.Logger) error

// Main is a daemon's main function: it parses the command line into set, which contains flags, runs the
// daemon until a signal or a failure, and exits.
func Main(set *pflag.FlagSet, flags *Flags, help Help, run runDaemon) {
	signals := append([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT}, help.Signals...)
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	code := runCommand(ctx, set, os.Args[1:], os.Stdout, os.Stderr, flags, help, run)
	stop()
	os.Exit(code)
}

func runCommand(
	ctx context.Context, set *pflag.FlagSet, args []string, stdout, stderr io.Writer, flags *Flags, help Help,
	run runDaemon,
) int {
	showVersion := set.Bool("version", false, "print the version and exit")
	set.SetOutput(io.Discard)
	set.SortFlags = false
	set.Usage = func() {}
	switch err := parseArguments(set, args); {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprint(stdout, helpPage(set, help))
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "%s: %v; see %s --help\n", set.Name(), err, set.Name())
		return cmp.Or(help.BadUsage, exitUsage)
	case *showVersion:
		fmt.Fprintln(stdout, set.Name(), version.Text())
		return exitOK
	}
	if flags.probe != noProbe {
		if err := askProbe(ctx, flags.Health, flags.probe); err != nil {
			fmt.Fprintf(stderr, "%s: %v\n", set.Name(), err)
			return exitError
		}
		return exitOK
	}
	flags.logLevel = flags.glog.levelOf(set, flags.logLevel)
	log := flags.newLogger(stderr)
	log.Info("started", "version", version.Text(), "config", effectiveConfig(set))
	if err := flags.runWatched(ctx, set.Name(), log, run); err != nil && !isStopped(ctx, err) {
		fmt.Fprintf(stderr, "%s: %v\n", set.Name(), err)
		return exitError
	}
	log.Info("stopped", "cause", context.Cause(ctx))
	return exitOK
}

// parseArguments parses args. Like the stock plugins, it accepts one dash before a flag's name as well as
// two. The only names of one letter are -h, and -v in a set that has it.
func parseArguments(set *pflag.FlagSet, args []string) error {
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

// isStopped reports whether err means only that a signal ended ctx.
func isStopped(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Canceled)
}

func helpPage(set *pflag.FlagSet, help Help) string {
	return fmt.Sprintf("%s\n\nUsage:\n  %s [flags]\n\nExamples:\n%s\n\nFlags:\n%s\nThe flags of glog, "+
		"which manifests of the stock plugins set, are accepted too.\n\n%s",
		strings.TrimSpace(help.About), set.Name(), strings.Trim(help.Examples, "\n"), set.FlagUsages(),
		help.ExitCodes)
}

// effectiveConfig returns the effective configuration, one attribute per flag. Hidden flags are included only
// if they were set.
func effectiveConfig(set *pflag.FlagSet) slog.Value {
	var attributes []slog.Attr
	set.VisitAll(func(f *pflag.Flag) {
		if f.Name != "version" && (!f.Hidden || f.Changed) {
			attributes = append(attributes, slog.String(f.Name, f.Value.String()))
		}
	})
	return slog.GroupValue(attributes...)
}

// errRestart is the cause of the end of work that starts over.
var errRestart = errors.New("restart discovery")

// Restarting runs work until ctx is done or work fails. Work starts over on every SIGHUP, the signal of a
// changed configuration, and when work calls restart, for a change that it noticed.
func Restarting(
	ctx context.Context, log *slog.Logger, work func(ctx context.Context, restart func()) error,
) error {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	for {
		attempt, cancel := context.WithCancelCause(ctx)
		restart := func() { cancel(errRestart) }
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			select {
			case <-hangup:
				restart()
			case <-attempt.Done():
			}
		}()
		err := work(attempt, restart)
		cancel(nil)
		<-stopped
		if err != nil && !errors.Is(err, context.Canceled) || !errors.Is(context.Cause(attempt), errRestart) {
			return err
		}
		log.Info("restarting discovery; the configuration or the GPUs may have changed")
	}
}

// runWatched runs a daemon together with its Monitor and, if enabled, the sender of events.
func (f *Flags) runWatched(ctx context.Context, name string, log *slog.Logger, run runDaemon) error {
	var beside sync.WaitGroup
	serving, stop := context.WithCancel(ctx)
	defer beside.Wait()
	defer stop()
	f.openEvents(name, log)
	if f.sender != nil {
		f.monitor.verdict = f.sender.Tell
		beside.Go(func() { f.sender.Run(serving) })
	}
	beside.Go(func() { f.monitor.Serve(serving, f.Metrics, f.Health, log) })
	return run(ctx, log)
}

// openEvents creates the sender of events. Without the API server the daemon runs without events.
func (f *Flags) openEvents(name string, log *slog.Logger) {
	if !f.Events {
		return
	}
	sender, err := openEvents(eventsConfig{
		Component: name, Node: f.NodeName, Count: f.monitor.Event, Log: log,
	})
	if err != nil {
		log.Warn("events on pods are disabled", "error", err)
		return
	}
	f.sender = sender
}
