// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
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
