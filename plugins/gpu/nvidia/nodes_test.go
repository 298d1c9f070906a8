// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvidia

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDeviceNodes: a GPU whose node an answer would name, and the machine lacks, is unhealthy, with the
// module in the reason; a node that comes or goes is a reason for a discovery. Where the container's runtime
// finds the nodes nobody looks for them.
func TestDeviceNodes(t *testing.T) {
	for _, c := range []struct {
		name      string
		args      []string
		unhealthy int
	}{
		{"the answer names nodes", []string{"--pass-device-specs"}, 1},
		{"the runtime finds them", nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := record(t, "nv-h100-oci", nil)
			node := filepath.Join(n.devRoot, "nvidia2")
			if err := os.Remove(node); err != nil {
				t.Fatal(err)
			}
			backend, inventory := n.discover(t, c.args...)
			unhealthy := 0
			for _, d := range inventory.Resources[wholeGPUs] {
				if !d.Healthy && strings.Contains(d.Reason, "/dev/nvidia2: load the kernel module nvidia") {
					unhealthy++
				}
			}
			if unhealthy != c.unhealthy || !backend.areIntact() {
				t.Errorf("%d unhealthy, want %d; intact %t", unhealthy, c.unhealthy, backend.areIntact())
			}
			if err := os.WriteFile(node, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if backend.areIntact() == (c.unhealthy > 0) {
				t.Error("the node that has come is no reason for a discovery, or nobody needs it")
			}
		})
	}
}
