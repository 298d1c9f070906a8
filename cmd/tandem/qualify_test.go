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

// qualifying returns the command that qualifies the node, and the file of the report.
func (s *sick) qualifying(args ...string) (command []string, file string) {
	file = s.path("report.json")
	places := s.command(args...)[1:] // of doctor
	return append([]string{"qualify", "-f", file}, places...), file
}

func readReport(t *testing.T, file string) (*qualify.Report, string) {
	t.Helper()
	text, err := os.ReadFile(file)
	ready(t, err)
	r, err := qualify.Read(strings.NewReader(string(text)))
	ready(t, err)
	return r, string(text)
}

// TestQualify: on a node without plugins the evidence is incomplete, and the report is a document of its
// schema, a machine for the other commands, and judged alike by --check.
func TestQualify(t *testing.T) {
	t.Parallel()
	node := layOut(t, sysfs(t, "oci-mi300x-derived", 4))
	command, file := node.qualifying()
	code, stdout, stderr := run(command...)
	if code != cli.ExitUnknown || stderr != "" || !strings.Contains(stdout, "offer      incomplete") {
		t.Fatalf("exit code %d, %q: %s", code, stdout, stderr)
	}
	r, text := readReport(t, file)
	validate(t, "qualify", text)
	if len(r.Plans) != 4 || r.System.AMD == "" || r.Tandem == "" {
		t.Errorf("plans %v, system %+v, version %q", r.Plans, r.System, r.Tandem)
	}
	for _, private := range []string{node.root, filepath.Base(node.root)} {
		if strings.Contains(text, private) {
			t.Errorf("the report contains %s", private)
		}
	}
	var shown colours
	checked, judged, _ := run("qualify", "--check", file, "--color=always")
	judged = shown.strip(judged)
	shown.check(t, "green passed, yellow incomplete")
	if checked != code || judged != stdout {
		t.Errorf("--check: exit code %d, %s instead of %s", checked, judged, stdout)
	}
	_, printed, verdicts := run(append([]string{"qualify"}, command[3:]...)...)
	if printed != text || verdicts != stdout {
		t.Errorf("without a file: %s%s", verdicts, cmp.Diff(text, printed))
	}
	direct := succeed(t, "topo", "--sysfs-root", node.path("sys"))
	if got := succeed(t, "topo", "--machine", file); got != direct {
		t.Errorf("topo of the report:\n%s\nof the machine:\n%s", got, direct)
	}
	if code, _, stderr := run(command...); code != cli.ExitError || !strings.Contains(stderr, "--force") {
		t.Errorf("a second time: exit code %d, %s", code, stderr)
	}
}

// TestQualifyWithFiles: the files of other programs are evidence, and a file of another node is an error that
// names the file.
func TestQualifyWithFiles(t *testing.T) {
	t.Parallel()
	node := layOut(t, sysfs(t, "oci-mi300x-derived", 4))
	node.write("topo.xml", succeed(t, "topo", "-o", "nccl", "--sysfs-root", node.path("sys")))
	const pair = `{"version": 1, "pairs": [{"gpu": "0000:11:00.0", "vf": "%", "distance": "PIX"}], "failures": [],
		"traffic": {"seconds": 5, "pairs": [{"gpu": "0000:11:00.0", "vf": "%", "distance": "PIX", "memory": "gpu",
		"gbps": 190, "verdict": "ok"}]}}`
	node.write("pod.json", strings.ReplaceAll(pair, "%", "0000:0c:00.1"))
	node.write("other.json", strings.ReplaceAll(pair, "%", "0000:0d:00.1"))
	command, file := node.qualifying(
		"--nccl-topology", node.path("topo.xml"), "--verified", node.path("pod.json"))
	if code, _, stderr := run(command...); code != cli.ExitUnknown {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	r, _ := readReport(t, file)
	for _, result := range r.Results[4:] {
		if result.Verdict != "passed" {
			t.Errorf("%s is %s: %q", result.Part, result.Verdict, result.Details)
		}
	}
	for wrong, told := range map[string]string{
		"other.json": "0000:0d:00.1", "topo.xml": "topo.xml", "absent.json": "absent.json",
	} {
		command, _ := node.qualifying("--force", "--verified", node.path(wrong))
		if code, _, stderr := run(command...); code != cli.ExitError || !strings.Contains(stderr, told) {
			t.Errorf("--verified %s: exit code %d: %s", wrong, code, stderr)
		}
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
