// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/test/docs"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/programs"
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
	bin := programs.Build(t, "tandem", "tandem-gpu", "tandem-rdma")
	report, err := machines.Report("h100")
	if err != nil {
		t.Fatal(err)
	}
	recording, err := os.ReadFile(recorded("oci-mi300x-derived"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for name, content := range map[string][]byte{"node.json": report, "node.txt": recording} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
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
