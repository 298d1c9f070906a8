// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/coordination/version"
	"github.com/tandem-k8s/tandem/test/machines"
)

func ready(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run runs tandem.
func run(args ...string) (code int, stdout, stderr string) {
	var out, problems bytes.Buffer
	code = cli.Execute(newRoot(), args, &out, &problems)
	return code, out.String(), problems.String()
}

// succeed runs tandem and returns its output.
func succeed(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := run(args...)
	if code != cli.ExitOK || stderr != "" {
		t.Fatalf("tandem %s: exit code %d, standard error %q", strings.Join(args, " "), code, stderr)
	}
	return stdout
}

// recorded is a file in the repository.
func recorded(machine string) string { return "../../test/machines/" + machines.File(machine) }

// withVFs writes a machine with VFs into a file.
func withVFs(t *testing.T, machine string, perPF int) string {
	t.Helper()
	m, err := machines.Load(machine, perPF)
	ready(t, err)
	var text bytes.Buffer
	if _, err := m.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	return write(t, "machine.txt", text.String())
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	ready(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// TestHelpFlags: the help page of a command lists each flag once.
func TestHelpFlags(t *testing.T) {
	t.Parallel()
	for _, cmd := range newRoot().Commands() {
		if cmd.Hidden {
			continue
		}
		help := succeed(t, cmd.Name(), "--help")
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			line := regexp.MustCompile(`(?m)^ +(?:-\w, )?--` + f.Name + `(?: |$)`)
			if n := len(line.FindAllString(help, -1)); n != 1 {
				t.Errorf("tandem %s --help has --%s %d times", cmd.Name(), f.Name, n)
			}
		})
	}
}

// TestVersion: the common version, in the daemons' format.
func TestVersion(t *testing.T) {
	t.Parallel()
	for as, more := range map[string]bool{"--version": false, "version": true} {
		first, rest, _ := strings.Cut(succeed(t, as), "\n")
		goes := "\ngo        " + runtime.Version() + "\n"
		if first != "tandem "+version.Text() || strings.Contains(rest, goes) != more {
			t.Errorf("tandem %s prints %q and %q", as, first, rest)
		}
		_, out, _ := plugin("none", as)
		if first, _, _ = strings.Cut(out, "\n"); first != "kubectl-tandem "+version.Text() {
			t.Errorf("kubectl tandem %s prints %q", as, first)
		}
	}
	validate(t, "version", succeed(t, "version", "-o", "json"))
}

// runOnMac runs tandem as on a Mac, which has no node's files.
func runOnMac(args ...string) (code int, stdout, stderr string) {
	var out, problems bytes.Buffer
	root := newRoot()
	refuseNodeCommands(root, "darwin")
	code = cli.Execute(root, args, &out, &problems)
	return code, out.String(), problems.String()
}

// TestOnMac: a command that needs the node says so and names the remedy; a command with a recording or with a
// copy of sysfs works.
func TestOnMac(t *testing.T) {
	t.Parallel()
	machine := recorded("oci-mi300x-derived")
	portable := map[string][]string{
		"topo": {"--machine", machine}, "plan": {"--gpus", "2", "--vfs", "2", "--machine", machine},
		"doctor": {"--machine", machine}, "version": nil,
		"qualify": {"--check", recorded("h100")},
	}
	for _, cmd := range newRoot().Commands() {
		name := cmd.Name()
		if args, ok := portable[name]; ok {
			args = append([]string{name}, args...)
			want, wantOut, wantErr := run(args...)
			if code, stdout, stderr := runOnMac(args...); code != want || stdout != wantOut || stderr != wantErr {
				t.Errorf("%s: %d instead of %d\n%s%s", args, code, want, stdout, stderr)
			}
		}
		if cmd.Hidden || name == "version" {
			continue
		}
		code, stdout, stderr := runOnMac(name)
		for _, want := range []string{
			"tandem " + name + ": this command needs the node", "Linux, not darwin; ", nodeCommands[name].instead,
		} {
			if code != cli.ExitError || stdout != "" || !strings.Contains(stderr, want) {
				t.Errorf("%s: %d %s%s, want %q", name, code, stdout, stderr, want)
			}
		}
	}
	if code, _, stderr := runOnMac("status", "--sysfs-root", "testdata"); code != cli.ExitError ||
		!strings.Contains(stderr, "run kubectl tandem status") {
		t.Errorf("status, whose plugins run on no Mac: %d %s", code, stderr)
	}
	if code, _, stderr := runOnMac("topo", "--sysfs-root", "testdata"); code != cli.ExitError ||
		strings.Contains(stderr, "Linux") {
		t.Errorf("topo of a folder: %d %s", code, stderr)
	}
}
