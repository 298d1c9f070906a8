// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
)

// TestColorFlag: --color decides about the text for people, and never changes a document.
func TestColorFlag(t *testing.T) {
	t.Parallel()
	machine := recorded("oci-mi300x-derived")
	for _, c := range []struct {
		args     string
		coloured bool
	}{
		{"plan --gpus 1 --vfs 1", false},
		{"plan --gpus 1 --vfs 1 --color=never", false},
		{"--color=always plan --gpus 1 --vfs 1", true},
		{"plan --gpus 1 --vfs 1 --color always", true},
		{"plan --gpus 1 --vfs 1 --color=always -o json", false},
		{"plan --gpus 1 --vfs 1 --color=always -o svg", false},
		{"doctor --color=always", true},
		{"doctor --color=always -o json", false},
		{"topo --color=always", false},
	} {
		_, stdout, stderr := run(append(strings.Fields(c.args), "--machine", machine)...)
		if got := strings.Contains(stdout, "\x1b["); got != c.coloured || stdout == "" {
			t.Errorf("tandem %s: coloured is %t\n%s%s", c.args, got, stdout, stderr)
		}
	}
	code, _, stderr := run("topo", "--color=alway")
	if code != cli.ExitUsage || !strings.Contains(stderr, "want auto, always or never (did you mean always?)") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
