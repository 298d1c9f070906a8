// SPDX-License-Identifier: Apache-2.0

package system

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestReplace(t *testing.T) {
	for name, replace := range map[string]func(string, []byte, os.FileMode) error{
		"Replace": Disk{}.Replace, "ReplaceDurably": Disk{}.ReplaceDurably,
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "file")
			for _, content := range []string{"first", "second"} {
				if err := replace(file, []byte(content), 0o640); err != nil {
					t.Fatal(err)
				}
				got, err := os.ReadFile(file)
				if err != nil || string(got) != content {
					t.Errorf("%q, %v; want %q", got, err, content)
				}
			}
			info, err := os.Stat(file)
			if err != nil || info.Mode().Perm() != 0o640 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
			if entries, err := os.ReadDir(filepath.Dir(file)); err != nil || len(entries) != 1 {
				t.Errorf("left in the folder: %v, %v", entries, err)
			}
			if err := replace(filepath.Join(file, "below"), nil, 0o600); err == nil {
				t.Error("no error of a folder that is none")
			}
			if err := replace(filepath.Dir(file), nil, 0o600); err == nil {
				t.Error("no error of a file that is a folder")
			}
		})
	}
}

// What is left by a process that was killed goes, and nothing else.
func TestRemoveTemporaries(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".tandem-123", "tandem", ".other"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := (Disk{}).RemoveTemporaries(dir); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("left: %v", entries)
	}
	if err := (Disk{}).RemoveTemporaries(filepath.Join(dir, "none")); err != nil {
		t.Errorf("a folder that is not there: %v", err)
	}
}

// TestTemporariesOfTheFuture: after the clock was set back, a temporary file is abandoned as well; one that
// may be written at this moment stays.
func TestTemporariesOfTheFuture(t *testing.T) {
	dir := t.TempDir()
	for name, early := range map[string]time.Duration{".tandem-later": time.Hour, ".tandem-now": time.Second} {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if at := time.Now().Add(early); os.Chtimes(name, at, at) != nil {
			t.Fatal(name)
		}
	}
	if err := (Disk{}).RemoveAbandoned(dir); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 || entries[0].Name() != ".tandem-now" {
		t.Errorf("left: %v", entries)
	}
}
