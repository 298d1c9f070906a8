// SPDX-License-Identifier: Apache-2.0

package pairs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/system"
)

// A repair writes each pairs file of the node again and again: a file that has its content stays the same
// file, and another content replaces it.
func TestWriteKeepsEqualFile(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "pairs", "a.json")
	write := func(f File) os.FileInfo {
		if err := f.Write(system.Disk{}, name); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	first := write(New([]VF{{ID: "a"}}))
	if again := write(New([]VF{{ID: "a"}})); !os.SameFile(first, again) {
		t.Error("an equal file was replaced")
	}
	if changed := write(New([]VF{{ID: "b"}})); os.SameFile(first, changed) {
		t.Error("the file of another content is still there")
	}
	if read, err := Read(name); err != nil || read.Pairs[0].VF.ID != "b" {
		t.Errorf("%+v, %v", read, err)
	}
}
