// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/qualify"
)

// TestQualify: the report is a document of its schema without private data, and a machine for the other
// commands. Without a file it is printed.
func TestQualify(t *testing.T) {
	t.Parallel()
	node := layOut(t, sysfs(t, "oci-mi300x-derived", 4))
	file, places := node.path("report.json"), node.command()[1:] // of doctor
	code, stdout, stderr := run(append([]string{"qualify", "-f", file}, places...)...)
	if code != cli.ExitUnknown || stderr != "" {
		t.Fatalf("exit code %d, %q: %s", code, stdout, stderr)
	}
	content, err := os.ReadFile(file)
	ready(t, err)
	text := string(content)
	validate(t, "qualify", text)
	r, err := qualify.Read(strings.NewReader(text))
	ready(t, err)
	if len(r.Plans) != 4 || r.System.AMD == "" || r.Tandem == "" {
		t.Errorf("plans %v, system %+v, version %q", r.Plans, r.System, r.Tandem)
	}
	for _, private := range []string{node.root, filepath.Base(node.root)} {
		if strings.Contains(text, private) {
			t.Errorf("the report contains %s", private)
		}
	}
	_, printed, verdicts := run(append([]string{"qualify"}, places...)...)
	if printed != text || verdicts != stdout {
		t.Errorf("without a file: %s%s", verdicts, cmp.Diff(text, printed))
	}
	direct := succeed(t, "topo", "--sysfs-root", node.path("sys"))
	if got := succeed(t, "topo", "--machine", file); got != direct {
		t.Errorf("topo of the report:\n%s\nof the machine:\n%s", got, direct)
	}
}

// TestQualifyPartly: a report that cannot be written in full is not left behind, so that the next run writes
// a new one. A file that --force overwrites stays.
func TestQualifyPartly(t *testing.T) {
	t.Parallel()
	sys, file := sysfs(t, "oci-mi300x-derived", 4), filepath.Join(t.TempDir(), "node.json")
	try := func(args ...string) {
		out, err := limited(t, "ulimit -f 1", append([]string{
			"qualify", "--sysfs-root", sys, "--run-dir", filepath.Dir(file), "-f", file,
		}, args...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "write "+file+": file too large") {
			t.Errorf("%v: %s", err, out)
		}
	}
	try()
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file stays: %v", err)
	}
	ready(t, os.WriteFile(file, []byte("mine"), 0o600))
	try("--force")
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}
