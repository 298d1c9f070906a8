// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/coordination/version"
)

// start runs a daemon tandem-test with an additional flag, --number.
func start(ctx context.Context, run runDaemon, args ...string) (code int, stdout, stderr string) {
	set := pflag.NewFlagSet("tandem-test", pflag.ContinueOnError)
	var flags Flags
	flags.Register(set)
	set.Uint("number", 0, "a number")
	var out, problems bytes.Buffer
	code = runCommand(ctx, set, args, &out, &problems, &flags,
		Help{About: "Tests.", Examples: "  tandem-test --number=1", ExitCodes: "Exit codes:"}, run)
	return code, out.String(), problems.String()
}

func TestExitCodes(t *testing.T) {
	t.Attr("parity", "amd/glog-flags")
	works := func(context.Context, *slog.Logger) error { return nil }
	fails := func(context.Context, *slog.Logger) error {
		return errors.New("read numa_node of 0000:81:00.0: broken")
	}
	never := func(context.Context, *slog.Logger) error { t.Error("ran"); return nil }
	signalled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name           string
		ctx            context.Context
		run            runDaemon
		args           []string
		code           int
		stdout, stderr string // parts; "" for no output
	}{
		{"works", t.Context(), works, []string{"--log-level=error"}, 0, "", ""},
		{"fails", t.Context(), fails, []string{"--log-level=error"}, 1, "",
			"tandem-test: read numa_node of 0000:81:00.0: broken\n"},
		{"ended by a signal",
			signalled, func(ctx context.Context, _ *slog.Logger) error { return fmt.Errorf("serve: %w", ctx.Err()) },
			[]string{"--log-level=error"}, 0, "", ""},
		{"help", t.Context(), never, []string{"--help"}, 0, "Exit codes:", ""},
		{"short help", t.Context(), never, []string{"-h"}, 0, "tandem-test --number=1", ""},
		{"version", t.Context(), never, []string{"--version"}, 0, "tandem-test " + version.Text() + "\n", ""},
		{"unknown flag", t.Context(), never, []string{"--colour=red"}, 2, "", "--colour; see tandem-test --help\n"},
		{"single dash", t.Context(), works, []string{"-number=3", "-log-level=error"}, 0, "", ""},
		{"flags of glog", t.Context(), works,
			[]string{
				"-logtostderr=false", "-stderrthreshold=ERROR", "-v=5", "-vmodule=a=1", "-log_dir", "/tmp",
				"-alsologtostderr", "--log_backtrace_at=a.go:1",
			}, 0, "", ""},
		{"verbosity apart", t.Context(), works, []string{"-v", "5", "-log-level=error"}, 0, "", ""},
		{"severity by number", t.Context(), works, []string{"-stderrthreshold=2"}, 0, "", ""},
		{"all to standard error", t.Context(), works, []string{"-logtostderr", "-stderrthreshold=ERROR", "-v=5"},
			0, "", "started"},
		{"our own flag is stronger", t.Context(), works, []string{"-stderrthreshold=ERROR", "--log-level=info"},
			0, "", "started"},
		{"bad severity", t.Context(), never, []string{"-stderrthreshold=LOUD"}, 2, "", "--stderrthreshold"},
		{"bad verbosity", t.Context(), never, []string{"-v=much"}, 2, "", "--v"},
		{"bad number", t.Context(), never, []string{"--number=many"}, 2, "",
			`"--number" flag: want a whole number`},
		{"negative number", t.Context(), never, []string{"--number", "-3"}, 2, "", "--number"},
		{"bad level", t.Context(), never, []string{"--log-level=loud"}, 2, "", "--log-level"},
		{"bad format", t.Context(), never, []string{"--log-format=xml"}, 2, "", "want text or json"},
		{"bad registration", t.Context(), never, []string{"--registration=twice"}, 2, "",
			"want auto, register or watcher"},
		{"address without a port", t.Context(), never, []string{"--metrics-bind-address=9478"}, 2, "",
			"--metrics-bind-address"},
		{"address of a name", t.Context(), never, []string{"--health-probe-bind-address=localhost:9477"}, 2, "",
			"is no IP address"},
		{"unknown target", t.Context(), never, []string{"--publish=tandem,everything"}, 2, "",
			`"--publish" flag: unknown target "everything"`},
		{"labels beside none", t.Context(), never, []string{"--publish=kubenexus"}, 2, "", "name both"},
		{"argument", t.Context(), never, []string{"now"}, 2, "", `unexpected argument "now"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := start(c.ctx, c.run, c.args...)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			expect(t, "standard output", stdout, c.stdout)
			expect(t, "standard error", stderr, c.stderr)
			if code != 0 && strings.Count(stderr, "\n") > 1 {
				t.Errorf("more than one line on standard error: %q", stderr)
			}
		})
	}
}

func expect(t *testing.T, where, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) || (want == "" && got != "") {
		t.Errorf("%s: %q, want %q", where, got, want)
	}
}

func TestStartLineHasTheEffectiveConfig(t *testing.T) {
	code, _, stderr := start(t.Context(), func(context.Context, *slog.Logger) error { return nil },
		"--log-format=json", "--run-dir=/tmp/run", "--preferred-allocation=false")
	first, _, _ := strings.Cut(stderr, "\n")
	var line struct {
		Msg    string
		Config map[string]string
	}
	if err := json.Unmarshal([]byte(first), &line); err != nil || code != 0 {
		t.Fatalf("%q: %v", first, err)
	}
	for flag, want := range map[string]string{
		"sysfs-root": "/sys", "dev-root": "/dev", "kubelet-dir": "/var/lib/kubelet", "run-dir": "/tmp/run",
		"log-format": "json", "log-level": "INFO", "preferred-allocation": "false",
		"registration": "auto", "number": "0", "intent": "pods-api,podresources", "alignment": "preferred",
		"alignment-opt-out": "none", "events": "false", "kubelet-cert-file": "",
		"device-annotations": "none", "metrics-bind-address": "",
		"health-probe-bind-address": "", "topology-file": "",
		"publish": "", "kubelet-config": "", "kubelet-config-dir": "",
		"device-health": "on",
	} {
		if got := line.Config[flag]; got != want {
			t.Errorf("%s is %q, want %q", flag, got, want)
		}
	}
	if line.Msg != "started" || len(line.Config) != 26 {
		t.Errorf("line %q", first)
	}
}

func TestSysfs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{filepath.Join(file, "none"), file + "none", file} {
		if _, err := (Flags{SysfsRoot: root}).Sysfs(); err == nil ||
			!strings.Contains(err.Error(), "--sysfs-root") || !strings.Contains(err.Error(), root) {
			t.Errorf("%s: %v", root, err)
		}
	}
	if _, err := (Flags{SysfsRoot: t.TempDir()}).Sysfs(); err != nil {
		t.Error(err)
	}
}

func TestProbeWords(t *testing.T) {
	t.Parallel()
	set := pflag.NewFlagSet("tandem-test", pflag.ContinueOnError)
	new(Flags).RegisterDriver(set)
	for word, want := range map[string]string{"livez": "want healthz or readyz", "readyz": "", "": ""} {
		err := parseArguments(set, []string{"--probe=" + word})
		if (err != nil) != (want != "") || want != "" && !strings.Contains(err.Error(), want) {
			t.Errorf("--probe=%s: %v", word, err)
		}
	}
}

// TestNoErrorInTheLog: a line without an error has no attribute "error", in either format.
func TestNoErrorInTheLog(t *testing.T) {
	t.Parallel()
	for _, format := range []logFormat{textFormat, jsonFormat} {
		var out strings.Builder
		log := (&Flags{logFormat: format}).newLogger(&out)
		var none error
		log.Warn("line", "error", none, "resource", "gpu")
		log.Warn("line", "error", errors.New("broken"))
		if got := out.String(); strings.Count(got, "error") != 1 || !strings.Contains(got, "broken") ||
			!strings.Contains(got, "gpu") {
			t.Errorf("%s: %s", format, got)
		}
	}
}

// Work starts over for a SIGHUP and for a reason of its own, and ends with its error or with ctx.
func TestRestarting(t *testing.T) {
	log, broken := slog.New(slog.DiscardHandler), errors.New("broken")
	attempts := 0
	err := Restarting(t.Context(), log, func(ctx context.Context, restart func()) error {
		switch attempts++; attempts {
		case 1:
			if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			<-ctx.Done()
			return nil
		case 2:
			restart()
			<-ctx.Done()
			return ctx.Err()
		default:
			return broken
		}
	})
	if !errors.Is(err, broken) || attempts != 3 {
		t.Errorf("after %d attempts: %v", attempts, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = Restarting(ctx, log, func(ctx context.Context, _ func()) error {
		cancel()
		<-ctx.Done()
		return nil
	})
	if err != nil {
		t.Errorf("ended by its context: %v", err)
	}
}
