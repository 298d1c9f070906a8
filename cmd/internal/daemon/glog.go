// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"
)

// glogFlags are the flags of the glog library. Manifests of the stock plugins set them, so the daemons accept
// them. Those for files and verbosity have no effect: --log-level sets the level, and the whole log goes to
// standard error.
type glogFlags struct {
	toStderr  bool
	threshold severity
}

// register adds the flags to a set, hidden from the help page.
func (g *glogFlags) register(set *pflag.FlagSet) {
	const ignored = "accepted and ignored"
	set.BoolVar(&g.toStderr, "logtostderr", false,
		"log all messages to standard error, regardless of --stderrthreshold")
	set.Var(&g.threshold, "stderrthreshold",
		"without --logtostderr, lowest severity that is logged to standard error: INFO, WARNING, ERROR or FATAL")
	set.Bool("alsologtostderr", false, ignored)
	set.Int("v", 0, ignored)
	for _, name := range []string{"vmodule", "log_dir", "log_link", "log_backtrace_at", "logbuflevel"} {
		set.String(name, "", ignored)
	}
	for _, name := range []string{
		"logtostderr", "stderrthreshold", "alsologtostderr", "v", "vmodule", "log_dir", "log_link",
		"log_backtrace_at", "logbuflevel",
	} {
		set.Lookup(name).Hidden = true
	}
}

// level returns the log level of --stderrthreshold if that flag applies and --log-level is not set, else
// otherwise.
func (g *glogFlags) level(set *pflag.FlagSet, otherwise slog.Level) slog.Level {
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
