// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
)

// TestPoolsApart: each of two pools has a VF for each GPU, and hints. The kubelet takes the VFs of a request
// from one pool: it admits 8 GPUs with 8 VFs, and plan and doctor say so, although both pools together have
// twice as many VFs as GPUs.
func TestPoolsApart(t *testing.T) {
	t.Parallel()
	s := layOut(t, sysfs(t, "oci-mi300x-derived", 2))
	var pools []string
	for vf := 1; vf <= 2; vf++ {
		var addresses []string
		for _, nic := range []string{"0c", "2a", "41", "58", "86", "a5", "bd", "d5"} {
			addresses = append(addresses, fmt.Sprintf("%q", fmt.Sprintf("0000:%s:00.%d", nic, vf)))
		}
		pools = append(pools, fmt.Sprintf(`{"resourceName": "pool%d", "selectors": {"pciAddresses": [%s]}}`, vf,
			strings.Join(addresses, ",")))
	}
	config := filepath.Join(t.TempDir(), "config.json")
	s.check(os.WriteFile(config, []byte(`{"resourceList": [`+strings.Join(pools, ",")+`]}`), 0o600))
	for _, stock := range []string{"--stock=false", "--stock"} {
		code, out, stderr := run("plan", "--sysfs-root", s.path("sys"), "--gpus", "8", "--vfs", "8",
			"--config", config, stock)
		if code != cli.ExitOK || strings.Contains(out, "rejects") {
			t.Errorf("plan %s: exit code %d\n%s%s", stock, code, out, stderr)
		}
	}
	s.with("--config", config)
	for _, f := range s.findings() {
		t.Errorf("doctor: %s: %s %q", f.ID, f.Summary, f.Evidence)
	}
}
