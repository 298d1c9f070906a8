// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tandem-k8s/tandem/coordination/version"
	"github.com/tandem-k8s/tandem/test/apiserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limit is the timeout of expected events.
const limit = 30 * time.Second

func await[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(limit):
		t.Fatalf("nothing happened for %s", limit)
	}
	return v
}

// configMap lays configurations out as the kubelet mounts a ConfigMap.
func configMap(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	data := filepath.Join(dir, "..2026_01_01")
	check(t, os.Mkdir(data, 0o750))
	check(t, os.Symlink("..2026_01_01", filepath.Join(dir, "..data")))
	for _, name := range names {
		check(t, os.WriteFile(filepath.Join(data, name), []byte("# "+name+"\n"), 0o600))
		check(t, os.Symlink("..data/"+name, filepath.Join(dir, name)))
	}
	return dir
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pod returns the variables of NVIDIA's config-manager as set by the GPU operator and the chart
// (assets/state-device-plugin/0500_daemonset.yaml in NVIDIA/gpu-operator v26.7.0).
func pod(api *apiserver.Served, source, target string) map[string]string {
	return map[string]string{
		"ONESHOT": "false", "KUBECONFIG": api.Kubeconfig(), "NODE_NAME": apiserver.Node,
		"NODE_LABEL": apiserver.Label, "CONFIG_FILE_SRCDIR": source, "CONFIG_FILE_DST": target,
		"DEFAULT_CONFIG": "", "FALLBACK_STRATEGIES": "empty",
		"SEND_SIGNAL": "true", "SIGNAL": "1", "PROCESS_TO_SIGNAL": "nvidia-device-plugin",
	}
}

// execute runs the command with variables to its end.
func execute(ctx context.Context, variables map[string]string, args ...string) (log string, err error) {
	cmd := newCommand(func(name string) (string, bool) { v, ok := variables[name]; return v, ok })
	var stderr bytes.Buffer
	cmd.SetErr(&stderr)
	cmd.SetOut(&stderr)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(ctx)
	return stderr.String(), err
}

// TestInit is the init container: it links the label's configuration without a signal, and ends.
func TestInit(t *testing.T) {
	for _, c := range []struct {
		label, preset, fallbacks string
		want                     string // the content
	}{
		{"mixed", "", "empty", "# mixed\n"},
		{"", "single", "empty", "# single\n"},
		{"", "", "empty", ""},
		{"", "", "named,single", "# default\n"},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			api := apiserver.Serve(t, c.label)
			target := filepath.Join(t.TempDir(), "config.yaml")
			variables := pod(api, configMap(t, "default", "mixed", "single"), target)
			variables["ONESHOT"], variables["SEND_SIGNAL"] = "true", "false"
			variables["SIGNAL"], variables["PROCESS_TO_SIGNAL"] = "", ""
			variables["DEFAULT_CONFIG"], variables["FALLBACK_STRATEGIES"] = c.preset, c.fallbacks
			if log, err := execute(t.Context(), variables); err != nil {
				t.Fatalf("%v\n%s", err, log)
			}
			if content, err := os.ReadFile(target); err != nil || string(content) != c.want {
				t.Errorf("the plugin reads %q, %v; want %q", content, err, c.want)
			}
		})
	}
}

// TestVersion: the command prints the common version; the variable VERSION has another purpose.
func TestVersion(t *testing.T) {
	cmd := newCommand(func(name string) (string, bool) { return "3.2", name == "VERSION" })
	var out bytes.Buffer
	cmd.SetArgs([]string{"--version"})
	cmd.SetOut(&out)
	if err := cmd.Execute(); err != nil || out.String() != "config-manager "+version.Text()+"\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	if err := fromEnvironment(cmd.Flags(), func(string) (string, bool) { return "3.2", true }); err == nil ||
		strings.Contains(err.Error(), "$VERSION") {
		t.Errorf("%v, want an error about another variable", err)
	}
}

// TestFollowsTheLabel is the sidecar: it installs every value of the label and signals the plugin, here this
// process under the plugin's name.
func TestFollowsTheLabel(t *testing.T) {
	for _, started := range []string{"nvidia-device-plugin", "/usr/bin/nvidia-device-plugin", "tandem-gpu"} {
		t.Run(started, func(t *testing.T) {
			told := make(chan os.Signal, 8)
			signal.Notify(told, syscall.SIGHUP)
			defer signal.Stop(told)
			api := apiserver.Serve(t, "mixed")
			target := filepath.Join(t.TempDir(), "config.yaml")
			source := configMap(t, "default", "mixed")
			check(t, os.Symlink(filepath.Join(source, "mixed"), target)) // by the init container
			set := newOptions(t, pod(api, source, target))
			config, err := findServer(set.kubeconfig)
			check(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			labels, err := watchLabel(ctx, config, set.nodeName, set.nodeLabel)
			check(t, err)
			proc := processes(t, map[int]string{1: "/pause\x00", 7: "/bin/sh\x00-c\x00nvidia-device-plugin\x00",
				os.Getpid(): started + "\x00--fail-on-init-error\x00"})
			ended := make(chan error, 1)
			go func() { ended <- (&keeper{options: set, proc: proc, log: quiet()}).runUntilDone(ctx, labels) }()
			for _, step := range []struct{ label, want string }{
				{"default", "# default\n"}, {"", ""}, {"mixed", "# mixed\n"},
			} {
				api.Set(step.label)
				await(t, told)
				if content, err := os.ReadFile(target); err != nil || string(content) != step.want {
					t.Errorf("label %q: the plugin reads %q, %v; want %q", step.label, content, err, step.want)
				}
			}
			cancel()
			check(t, await(t, ended))
			if len(told) > 0 {
				t.Error("the plugin is told of what it has already")
			}
		})
	}
}

// lines receives the lines of a log.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// TestWaits: a value of the label without a configuration is logged, changes nothing, and is forgotten at the
// next value.
func TestWaits(t *testing.T) {
	for _, c := range []struct {
		name    string
		oneshot bool
		before  string // the plugin's configuration
	}{{"init", true, ""}, {"sidecar", false, "# default\n"}} {
		t.Run(c.name, func(t *testing.T) {
			api := apiserver.Serve(t, "none-such")
			target := filepath.Join(t.TempDir(), "config.json")
			source := configMap(t, "default", "mixed")
			if c.before != "" {
				check(t, os.Symlink(filepath.Join(source, "default"), target))
			}
			set := newOptions(t, pod(api, source, target))
			set.oneshot, set.wait, set.process = c.oneshot, true, "tandem-rdma"
			set.send = !c.oneshot
			config, err := findServer(set.kubeconfig)
			check(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			labels, err := watchLabel(ctx, config, set.nodeName, set.nodeLabel)
			check(t, err)
			told := make(chan os.Signal, 8)
			signal.Notify(told, syscall.SIGHUP)
			defer signal.Stop(told)
			said, ended := make(lines, 8), make(chan error, 1)
			keeper := &keeper{
				options: set, log: slog.New(slog.NewTextHandler(said, nil)),
				proc: processes(t, map[int]string{os.Getpid(): "tandem-rdma\x00"}),
			}
			go func() { ended <- keeper.runUntilDone(ctx, labels) }()
			for want := `names the configuration \"none-such\"`; !strings.Contains(await(t, said), want); {
			}
			if content, err := os.ReadFile(target); string(content) != c.before || (err == nil) != (c.before != "") {
				t.Errorf("the plugin reads %q, %v; want %q", content, err, c.before)
			}
			api.Set("mixed")
			if c.oneshot {
				check(t, await(t, ended))
			} else {
				await(t, told)
				cancel()
				check(t, await(t, ended))
			}
			if content, err := os.ReadFile(target); err != nil || string(content) != "# mixed\n" {
				t.Errorf("the plugin reads %q, %v", content, err)
			}
		})
	}
}

// TestLooksAgain: a configuration that appears after the label is found, and its absence is logged once.
func TestLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, target := configMap(t, "default"), filepath.Join(t.TempDir(), "config.json")
		said, labels := make(lines, 8), make(chan string, 1)
		labels <- "late"
		keeper := &keeper{
			options: options{source: source, target: target, oneshot: true, wait: true},
			log:     slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelError})),
		}
		ended := make(chan error, 1)
		go func() { ended <- keeper.runUntilDone(t.Context(), labels) }()
		<-time.After(5 * again)
		check(t, os.WriteFile(filepath.Join(source, "late"), []byte("# late\n"), 0o600))
		check(t, <-ended)
		if content, err := os.ReadFile(target); err != nil || string(content) != "# late\n" || len(said) != 1 {
			t.Errorf("the plugin reads %q, %v; %d errors are told", content, err, len(said))
		}
	})
}

// TestErrors: a failed installation ends the command with one sentence.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		label  string
		change map[string]string
		args   []string
		want   string
	}{
		{"unknown configuration", "none-such", nil, nil,
			`the node's label nvidia.com/device-plugin.config names the configuration "none-such"`},
		{"unknown default", "", map[string]string{"DEFAULT_CONFIG": "none-such"}, nil,
			`--default-config names the configuration "none-such"`},
		{"nothing chosen", "", map[string]string{"FALLBACK_STRATEGIES": "named,single"}, nil,
			"no configuration is chosen"},
		{"unknown strategy", "", map[string]string{"FALLBACK_STRATEGIES": "any"}, nil,
			`--fallback-strategies has "any": want named, single or empty`},
		{"no process", "b", map[string]string{"PROCESS_TO_SIGNAL": "a process that nobody starts"}, nil,
			"find the process a process that nobody starts"},
		{"no folder", "", map[string]string{"CONFIG_FILE_SRCDIR": "/none"}, nil,
			"list the configurations: open /none"},
		{"no node", "", map[string]string{"NODE_NAME": ""}, nil, "--node-name is empty"},
		{"no number", "", map[string]string{"SIGNAL": "HUP"}, nil, "read $SIGNAL: "},
		{"no kubeconfig", "", nil, []string{"--kubeconfig=/none"}, "use --kubeconfig: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			target := filepath.Join(t.TempDir(), "config.yaml")
			variables := pod(apiserver.Serve(t, c.label), configMap(t, "a", "b"), target)
			maps.Copy(variables, c.change)
			if _, err := execute(t.Context(), variables, c.args...); err == nil ||
				!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}
