// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
)

func TestExplainUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"explain", "--container", "worker"},
		{"explain", "a", "b"},
		{"explain", "a/b/c"},
		{"explain", "a/"},
	} {
		if code, _, stderr := run(args...); code != cli.ExitUsage || !strings.Contains(stderr, "POD") {
			t.Errorf("%v: exit code %d, %q", args, code, stderr)
		}
	}
	if code, _, stderr := run("explain", "train", "--run-dir", t.TempDir()); code != cli.ExitError ||
		!strings.Contains(stderr, "no answer") {
		t.Errorf("no plugin: exit code %d, %q", code, stderr)
	}
}
