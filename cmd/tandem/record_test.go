// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/test/machines"
)

// TestRecord records a laid-out machine: the same file comes out, but for the comments.
func TestRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.CopyFS(dir, machines.Sys(t, "oci-mi300x-derived", 2)); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := run("record", "--sysfs-root", dir)
	if code != cli.ExitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	const summary = "recorded 1572 entries: 112 PCI functions, 2 NUMA nodes, 24 netdevs, 24 RDMA devices, " +
		"8 render nodes, 10 KFD nodes\n"
	if diff := cmp.Diff(summary, stderr); diff != "" {
		t.Errorf("standard error (-want +got):\n%s", diff)
	}
	want, err := os.ReadFile(withVFs(t, "oci-mi300x-derived", 2))
	if err != nil {
		t.Fatal(err)
	}
	_, entries, _ := strings.Cut(string(want), "\n[")
	if diff := cmp.Diff("# tandem machine v1\n["+entries, stdout); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRecordInto(t *testing.T) {
	t.Parallel()
	root, file := t.TempDir(), filepath.Join(t.TempDir(), "machine.txt")
	if err := os.CopyFS(root, machines.Sys(t, "nv-a100pcie-cx6dx-vf-partial", 0)); err != nil {
		t.Fatal(err)
	}
	record := func(more ...string) (int, string) {
		code, stdout, stderr := run(append([]string{"record", "--sysfs-root", root, "-f", file}, more...)...)
		if stdout != "" {
			t.Errorf("standard output: %q", stdout)
		}
		return code, stderr
	}
	if code, stderr := record(); code != cli.ExitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	first := succeed(t, "topo", "--machine", file)
	want := "tandem record: write " + file + ": the file exists; --force overwrites the file\n"
	if code, stderr := record(); code != cli.ExitError || stderr != want {
		t.Errorf("a second time: exit code %d, %q; want %q", code, stderr, want)
	}
	if code, stderr := record("--force"); code != cli.ExitOK {
		t.Errorf("with --force: exit code %d, %s", code, stderr)
	}
	if again := succeed(t, "topo", "--machine", file); again != first {
		t.Errorf("topo of the file changed:\n%s", again)
	}
}
