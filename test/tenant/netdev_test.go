// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"os"
	"path/filepath"
	"testing"
)

// TestNetdevRenamedByATenant: a pod with NET_ADMIN may give the netdev of its VF any name. The kernel returns
// the netdev to the node under this name, and the next owner of the VF gets its pairs all the same.
func TestNetdevRenamedByATenant(t *testing.T) {
	for kind, name := range map[string]string{"control: UTF-8": "renamed", "not UTF-8": "ens\xff"} {
		t.Run(kind, func(t *testing.T) {
			n := start(t, podsAPI, func(sys string) {
				list, err := filepath.Glob(filepath.Join(sys, "bus/pci/devices", vf, "net/*"))
				if err != nil || len(list) != 1 {
					t.Fatalf("netdevs of %s: %v, %v", vf, list, err)
				}
				if err := os.Rename(list[0], filepath.Join(filepath.Dir(list[0]), name)); err != nil {
					t.Fatal(err)
				}
			}, gpuProgram, vfProgram)
			if err := n.becomesRight(t); err != nil {
				t.Error(err)
			}
		})
	}
}
