// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// An empty --cdi-dirs is a mistake: one sentence on standard error.
func TestNoCDIDirs(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 1)
	n.write(t, "config.json", `{"resourceList": [{"resourceName": "vf", "selectors": {"isRdma": true}}]}`)
	cmd := exec.CommandContext(t.Context(), os.Args[0],
		"--sysfs-root="+n.path("sys"), "--dev-root="+n.path("dev"),
		"--kubelet-dir="+n.path("kubelet"), "--run-dir="+filepath.Join(n.kubelet, "run"),
		"--config-file="+n.path("config.json"),
		"--devinfo-dir="+n.path("no-such-folder"), "--registration=register", "--cdi-dirs=")
	cmd.Env = append(os.Environ(), asDaemon+"=1")
	output, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "--cdi-dirs is empty") {
		t.Errorf("it ends with %v:\n%.600s", err, output)
	}
}
