// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
)

// runOnMac runs tandem as on a Mac, which has no node's files.
func runOnMac(args ...string) (code int, stdout, stderr string) {
	var out, problems bytes.Buffer
	root := newRoot()
	refuseNodeCommands(root, "darwin")
	code = cli.Execute(root, args, &out, &problems)
	return code, out.String(), problems.String()
}

// TestOnMac: a command that needs the node says so and names the remedy; a command with a recording or with a
// copy of sysfs works.
func TestOnMac(t *testing.T) {
	t.Parallel()
	machine := recorded("oci-mi300x-derived")
	portable := map[string][]string{
		"topo": {"--machine", machine}, "plan": {"--gpus", "2", "--vfs", "2", "--machine", machine},
		"doctor": {"--machine", machine}, "version": nil,
		"qualify": {"--check", "../../test/machines/reports/emulated/h100.json"},
	}
	for _, cmd := range newRoot().Commands() {
		name := cmd.Name()
		if args, ok := portable[name]; ok {
			args = append([]string{name}, args...)
			want, wantOut, wantErr := run(args...)
			if code, stdout, stderr := runOnMac(args...); code != want || stdout != wantOut || stderr != wantErr {
				t.Errorf("%s: %d instead of %d\n%s%s", args, code, want, stdout, stderr)
			}
		}
		if cmd.Hidden || name == "version" {
			continue
		}
		code, stdout, stderr := runOnMac(name)
		for _, want := range []string{
			"tandem " + name + ": this command needs the node", "Linux, not darwin; ", nodeCommands[name].instead,
		} {
			if code != cli.ExitError || stdout != "" || !strings.Contains(stderr, want) {
				t.Errorf("%s: %d %s%s, want %q", name, code, stdout, stderr, want)
			}
		}
	}
	if code, _, stderr := runOnMac("status", "--sysfs-root", "testdata"); code != cli.ExitError ||
		!strings.Contains(stderr, "run kubectl tandem status") {
		t.Errorf("status, whose plugins run on no Mac: %d %s", code, stderr)
	}
	if code, _, stderr := runOnMac("topo", "--sysfs-root", "testdata"); code != cli.ExitError ||
		strings.Contains(stderr, "Linux") {
		t.Errorf("topo of a folder: %d %s", code, stderr)
	}
}
