// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/pairs"
)

// A client that requests one pairs file after the other for the same VFs gets no more files than a container
// can have resources, and the same file does not count again.
func TestPairsFilesOfContainerAreBounded(t *testing.T) {
	t.Parallel()
	a, dir := newPaired(t)
	c := a.coordinator
	vf := a.all[vfs][2]
	a.giveVF("c", vf)
	named := []pairs.VF{{ID: vf.ID, Address: vf.Address, Resource: vfs}}
	for n := range device.MaxResources + 2 {
		file := filepath.Join(dir, fmt.Sprint(n, ".json"))
		for range 2 {
			if _, written, _ := c.Pair(vfs, []string{vf.ID}, file, named); written != (n < device.MaxResources) {
				t.Errorf("file %d: written %t", n, written)
			}
		}
	}
	last := c.current().open
	if len(last.Files) != device.MaxResources || len(last.VFs) != device.MaxResources {
		t.Errorf("%d files and %d VFs are remembered, want %d each", len(last.Files), len(last.VFs),
			device.MaxResources)
	}
}
