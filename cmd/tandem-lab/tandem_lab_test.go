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

// TestVersion: the common version.
func TestVersion(t *testing.T) {
	t.Parallel()
	if got, want := succeed(t, "--version"), "tandem-lab "+version.Text()+"\n"; got != want {
		t.Errorf("tandem-lab --version prints %q, want %q", got, want)
	}
}
