// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
)

// registerLogging adds the flags for the log to a set.
func (f *Flags) registerLogging(set *pflag.FlagSet) {
	plainflag.Choice(set, &f.logFormat, "log-format", textFormat, "format of the log: text or json",
		textFormat, jsonFormat)
	set.TextVar((*level)(&f.logLevel), "log-level", level(slog.LevelInfo),
		"lowest level that is logged: debug, info, warn or error")
	plainflag.Words(set, "log-level", "debug", "info", "warn", "error")
	set.AddFlagSet(f.glog.newSet())
}

// level is a log level as the flag spells the level.
type level slog.Level

// MarshalText returns the level's word.
func (l level) MarshalText() ([]byte, error) { return slog.Level(l).MarshalText() }

// UnmarshalText accepts the words of slog, also with a number, such as "info+2".
func (l *level) UnmarshalText(text []byte) error {
	if (*slog.Level)(l).UnmarshalText(text) != nil {
		return errors.New("want debug, info, warn or error")
	}
	return nil
}

// logFormat is how log lines are written.
type logFormat string

// The two formats.
const (
	textFormat logFormat = "text"
	jsonFormat logFormat = "json"
)

// newLogger returns the daemon's logger: one line per decision, in the format and from the level of the
// flags.
func (f *Flags) newLogger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: f.logLevel, ReplaceAttr: onlyErrors}
	if f.logFormat == jsonFormat {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// onlyErrors omits an attribute "error" without an error, which would print as "error=<nil>".
func onlyErrors(_ []string, a slog.Attr) slog.Attr {
	if a.Key == "error" && a.Value.Any() == nil {
		return slog.Attr{}
	}
	return a
}

// glogFlags are the flags of the glog library. Manifests of the stock plugins set them, so the daemons accept
// them. Those for files and verbosity have no effect: --log-level sets the level, and the whole log goes to
// standard error.
type glogFlags struct {
	toStderr  bool
	threshold severity
}

// newSet returns the flags, hidden from the help page.
func (g *glogFlags) newSet() *pflag.FlagSet {
	const ignored = "accepted and ignored"
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	set.BoolVar(&g.toStderr, "logtostderr", false,
		"log all messages to standard error, regardless of --stderrthreshold")
	set.Var(&g.threshold, "stderrthreshold",
		"without --logtostderr, lowest severity that is logged to standard error: INFO, WARNING, ERROR or FATAL")
	set.Bool("alsologtostderr", false, ignored)
	set.Int("v", 0, ignored)
	for _, name := range []string{"vmodule", "log_dir", "log_link", "log_backtrace_at", "logbuflevel"} {
		set.String(name, "", ignored)
	}
	set.VisitAll(func(flag *pflag.Flag) { flag.Hidden = true })
	return set
}

// levelOf returns the log level of --stderrthreshold if that flag applies and --log-level is not set, else
// otherwise.
func (g *glogFlags) levelOf(set *pflag.FlagSet, otherwise slog.Level) slog.Level {
	if g.toStderr || !set.Changed("stderrthreshold") || set.Changed("log-level") {
		return otherwise
	}
	return slog.Level(g.threshold)
}

// severity is a level with glog's names and numbers.
type severity slog.Level

var severities = []struct {
	name  string
	level slog.Level
}{
	{"INFO", slog.LevelInfo},
	{"WARNING", slog.LevelWarn},
	{"ERROR", slog.LevelError},
	{"FATAL", slog.LevelError + 4},
}

// String implements pflag.Value.
func (s *severity) String() string { return slog.Level(*s).String() }

// Set implements pflag.Value.
func (s *severity) Set(text string) error {
	for number, known := range severities {
		if strings.EqualFold(text, known.name) || text == fmt.Sprint(number) {
			*s = severity(known.level)
			return nil
		}
	}
	return fmt.Errorf("want INFO, WARNING, ERROR or FATAL")
}

// Type implements pflag.Value.
func (s *severity) Type() string { return "severity" }
