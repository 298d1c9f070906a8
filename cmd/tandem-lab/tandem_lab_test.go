// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/coordination/version"
)

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
func recorded(machine string) string { return "../../test/machines/" + machine + ".txt" }

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestHelp: the help names the program.
func TestHelp(t *testing.T) {
	t.Parallel()
	help := succeed(t, "simulate", "--help")
	for _, want := range []string{
		"Usage:\n  tandem-lab simulate", "Examples:\n  tandem-lab simulate", "Exit codes:\n  0  success\n",
	} {
		if !strings.Contains(help, want) {
			t.Errorf("tandem-lab simulate --help lacks %q:\n%s", want, help)
		}
	}
	help = succeed(t, "completion", "--help")
	for _, want := range []string{"  source <(tandem-lab completion bash)\n", "/_tandem-lab\"\n"} {
		if !strings.Contains(help, want) {
			t.Errorf("tandem-lab completion --help lacks %q:\n%s", want, help)
		}
	}
	if got, want := succeed(t, "--version"), "tandem-lab "+version.Text()+"\n"; got != want {
		t.Errorf("tandem-lab --version prints %q, want %q", got, want)
	}
}

// TestCompletion: the values of flags.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{
		"--policy": "restricted\nbest-effort\nsingle-numa-node\nnone\n", "--node": "A\nB\nC\n",
	} {
		if _, got, _ := run("__complete", "simulate", flag, ""); !strings.HasPrefix(got, want) {
			t.Errorf("simulate %s completes %q, want %q", flag, got, want)
		}
	}
}
