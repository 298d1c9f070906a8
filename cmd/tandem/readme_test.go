// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/test/docs"
	"github.com/tandem-k8s/tandem/test/machines"
)

// TestDocumentedCommands runs every command of tandem in the documents, unchanged, on a node with plugins and
// in a pod, and compares the output with the documented one.
func TestDocumentedCommands(t *testing.T) {
	commands, err := docs.Of("../..", "tandem")
	ready(t, err)
	if shown := slices.DeleteFunc(slices.Clone(commands),
		func(c docs.Command) bool { return c.Output == "" }); len(shown) < 3 {
		t.Errorf("the outputs of %d commands are shown", len(shown))
	}
	sys := sysfs(t, "oci-mi300x-derived", 4)
	node := layOut(t, sys)
	twoPairs().run(t, node.path("run"))
	inPod := newPod(t, "oci-mi300x-derived", 1).amd(ociGPU0, ociGPU1).vfs(ociVF0, ociVF1)
	perftest(t, []string{"mlx5_8=392.40", "mlx5_9=388.10"})
	for name, value := range inPod.env {
		t.Setenv(name, value)
	}
	root, err := filepath.Abs("../..")
	ready(t, err)
	t.Chdir(t.TempDir())
	ready(t, os.WriteFile("config.json", []byte(everyVF), 0o600))
	topology := succeed(t, "topo", "-o", "nccl", "--sysfs-root", node.path("sys"))
	ready(t, os.WriteFile("topo.xml", []byte(topology), 0o600))
	report, err := machines.Report("h100")
	ready(t, err)
	ready(t, os.WriteFile("node.json", report, 0o600))
	seen := map[string]bool{}
	for _, c := range commands {
		same := fmt.Sprint(c.Args, c.Into, c.Output)
		if seen[same] {
			continue
		}
		seen[same] = true
		at := node.path
		if c.Args[0] == "verify" || slices.Contains(c.Args, "container") {
			at = inPod.path
		}
		args := slices.Clone(c.Args)
		for i, arg := range args {
			args[i] = strings.ReplaceAll(arg, "test/machines", filepath.Join(root, "test/machines"))
			if arg == ":8080" {
				args[i] = ":0" // wherever there is room
			}
		}
		if slices.Contains(args, "-f") {
			args = append(args, "--force")
		}
		printed := runDocumented(t, c, append(args, roots(t, c, at)...))
		if c.Into != "" {
			checkWritten(t, c, filepath.Join(root, c.Into), printed)
		}
	}
}

// checkWritten compares a command's output with the file of the repository that the command has written, if
// any.
func checkWritten(t *testing.T, c docs.Command, file, printed string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err == nil && printed != string(content) {
		t.Errorf("%s: %s is another; make it anew", c, c.Into)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// runDocumented expects success and returns the output; doctor and qualify may end with findings.
func runDocumented(t *testing.T, c docs.Command, args []string) string {
	t.Helper()
	if slices.Contains(args, "--serve") {
		serveOnce(t, args...)
		return ""
	}
	code, stdout, stderr := run(args...)
	judges := args[0] == "doctor" || args[0] == "qualify"
	if code != cli.ExitOK && (code != cli.ExitFound && code != cli.ExitUnknown || !judges) ||
		stdout+stderr == "" {
		t.Errorf("%s: exit code %d\n%s%s", c, code, stdout, stderr)
	}
	if diff := cmp.Diff(c.Output, stdout); c.Output != "" && diff != "" {
		t.Errorf("%s: the document shows something else (-document +printed):\n%s", c, diff)
	}
	return stdout
}

// roots returns the flags for the paths of the node that the command has and the document does not set.
func roots(t *testing.T, c docs.Command, at func(string) string) (flags []string) {
	t.Helper()
	cmd, _, err := newRoot().Find(c.Args)
	if err != nil {
		t.Fatalf("%s: %v", c, err)
	}
	if slices.Contains(c.Args, "--check") {
		return nil // of a file
	}
	for flag, folder := range map[string]string{
		"sysfs-root": "sys", "dev-root": "dev", "proc-root": "proc", "kubelet-dir": "kubelet", "run-dir": "run",
	} {
		if cmd.Flags().Lookup(flag) != nil &&
			(flag != "sysfs-root" || !slices.Contains(c.Args, "--machine")) {
			flags = append(flags, "--"+flag, at(folder))
		}
	}
	return flags
}
