// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// TestAbandonedFolder: what a killed server has open leaves the files as they were at its death, without
// unfinished ones. Folders that are opened later, by whichever process, can be changed.
func TestAbandonedFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := newDisk("")
	replace := func(f system.Folder, name, content string) {
		t.Helper()
		if err := system.ReplaceIn(f, name, []byte(content), 0o600); err != nil {
			t.Error(err)
		}
	}
	open := func() system.Folder {
		t.Helper()
		f, err := server.product().Folder(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	held := open()
	replace(held, "state", "before")
	unfinished, err := held.Create("unfinished")
	if err != nil {
		t.Fatal(err)
	}
	if err := server.abandon(); err != nil {
		t.Fatal(err)
	}
	replace(held, "state", "after")
	for _, err := range []error{held.Rename("unfinished", "state"), held.Remove("state"), unfinished.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
	replace(open(), "later", "alive")
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 || entries[0].Name() != "later" {
		t.Errorf("the folder has %v, %v", entries, err)
	}
	if state, err := os.ReadFile(filepath.Join(dir, "state")); string(state) != "before" {
		t.Errorf("the state is %q, %v", state, err)
	}
}

// TestTimesOfFiles: a file that a process writes has the virtual time.
func TestTimesOfFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		folder, err := newDisk("").product().Folder(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer folder.Close()
		if err := system.ReplaceIn(folder, "state", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		seeds.Sleep(time.Hour)
		info, err := os.Stat(filepath.Join(dir, "state"))
		if err != nil {
			t.Fatal(err)
		}
		if age := time.Since(info.ModTime()); age != time.Hour {
			t.Errorf("the file is %s old after an hour", age)
		}
	})
}
