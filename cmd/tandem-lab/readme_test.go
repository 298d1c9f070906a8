// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/cmd/internal/cli"
	"github.com/tandem-k8s/tandem/test/docs"
)

// TestDocumentedCommands runs every command of tandem-lab in the documents, simulations with few containers,
// and compares the output with the documented one.
func TestDocumentedCommands(t *testing.T) {
	commands, err := docs.Of("../..", "tandem-lab")
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	paths := strings.NewReplacer("test/machines", filepath.Join(root, "test/machines"))
	for _, c := range commands {
		args := slices.Clone(c.Args)
		for i, arg := range args {
			args[i] = paths.Replace(arg)
		}
		if args[0] == "simulate" {
			args = append(args, "--seeds", "1", "--arrivals", "100")
		}
		code, stdout, stderr := run(args...)
		if code != cli.ExitOK || stdout == "" {
			t.Errorf("%s: exit code %d\n%s%s", c, code, stdout, stderr)
		}
		if diff := cmp.Diff(c.Output, stdout); c.Output != "" && diff != "" {
			t.Errorf("%s: the document shows something else (-document +printed):\n%s", c, diff)
		}
	}
}
