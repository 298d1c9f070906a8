// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestOneNameOfASwitch: status, the picture and the published object use the same name for a switch.
func TestOneNameOfASwitch(t *testing.T) {
	t.Parallel()
	const port, upstream = "0000:3c:00.0", "0000:3d:00.0"
	runDir := filepath.Join(t.TempDir(), "run")
	plugins{status: onMachine(t, "oci-mi300x-derived", 4)}.run(t, runDir)
	for name, got := range map[string]string{
		"status":      succeed(t, "status", "--run-dir", runDir, "--kubelet-dir", t.TempDir()),
		"topo -o svg": succeed(t, "topo", "-o", "svg", "--machine", recorded("oci-mi300x-derived")),
		"topo -o resourceslices": succeed(t, "topo", "-o", "resourceslices", "--machine",
			recorded("oci-mi300x-derived")),
	} {
		got = strings.ReplaceAll(got, port+" › "+upstream, "") // the way there
		if !strings.Contains(got, upstream) || strings.Contains(got, port) {
			t.Errorf("%s does not call the switch %s:\n%.2000s", name, upstream, got)
		}
	}
}
