// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/coordination/version"
	"github.com/tandem-k8s/tandem/test/docs"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/programs"
)

func ready(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run runs tandem-lab.
func run(args ...string) (code int, stdout, stderr string) {
	var out, problems bytes.Buffer
	code = cli.Execute(newRoot(), args, &out, &problems)
	return code, out.String(), problems.String()
}

// succeed runs tandem-lab and returns its output.
func succeed(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := run(args...)
	if code != cli.ExitOK || stderr != "" {
		t.Fatalf("tandem-lab %s: exit code %d, standard error %q", strings.Join(args, " "), code, stderr)
	}
	return stdout
}

// recorded is a file in the repository.
func recorded(machine string) string { return "../../test/machines/" + machines.File(machine) }

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	ready(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// TestVersion: the common version.
func TestVersion(t *testing.T) {
	t.Parallel()
	if got, want := succeed(t, "--version"), "tandem-lab "+version.Text()+"\n"; got != want {
		t.Errorf("tandem-lab --version prints %q, want %q", got, want)
	}
}

// TestDocumentedCommands runs every command of tandem-lab in the documents, simulations with few containers,
// and compares the output with the documented one.
func TestDocumentedCommands(t *testing.T) {
	commands, err := docs.Of("../..", "tandem-lab")
	ready(t, err)
	root, err := filepath.Abs("../..")
	ready(t, err)
	bin := programs.Build(t, "tandem", "tandem-gpu", "tandem-rdma")
	report, err := machines.Report("h100")
	ready(t, err)
	recording, err := os.ReadFile(recorded("oci-mi300x-derived"))
	ready(t, err)
	t.Chdir(t.TempDir())
	for name, content := range map[string][]byte{"node.json": report, "node.txt": recording} {
		ready(t, os.WriteFile(name, content, 0o600))
	}
	paths := strings.NewReplacer("test/machines", filepath.Join(root, "test/machines"), "/tmp/node",
		filepath.Join(shortDir(t), "node"), "docs/play.txt", filepath.Join(root, "docs/play.txt"))
	for _, c := range commands {
		args := slices.Clone(c.Args)
		for i, arg := range args {
			args[i] = paths.Replace(arg)
		}
		if args[0] == "simulate" {
			args = append(args, "--seeds", "1", "--arrivals", "100")
		} else {
			args = append(args, "--programs", bin)
		}
		code, stdout, stderr := runInTime(args...)
		if code != cli.ExitOK || stdout == "" && args[0] != "play" { // without a command play says nothing
			t.Errorf("%s: exit code %d\n%s%s", c, code, stdout, stderr)
		}
		if diff := cmp.Diff(c.Output, stdout); c.Output != "" && diff != "" {
			t.Errorf("%s: the document shows something else (-document +printed):\n%s", c, diff)
		}
	}
}
