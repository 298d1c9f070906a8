// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/test/disk"
)

// afterPowerFailure writes two contents, loses power, and returns the file; "gone" for none.
func afterPowerFailure(
	t *testing.T, seed uint64, write func(d system.Disk, name, content string) error,
) string {
	t.Helper()
	d, name := disk.New(seed), filepath.Join(t.TempDir(), "file")
	for _, content := range []string{"first", "second"} {
		if err := write(d.Disk(), name, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.PowerFailure(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return "gone"
	}
	return string(content)
}

// A durable content survives each power failure; otherwise each of the old, the new and a partial content is
// possible, and no file.
func TestPowerFailure(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(200) {
		durable := afterPowerFailure(t, seed, func(d system.Disk, name, content string) error {
			return d.ReplaceDurably(name, []byte(content), 0o600)
		})
		if durable != "second" {
			t.Errorf("seed %d: a durable file has %q", seed, durable)
		}
		seen[afterPowerFailure(t, seed, func(d system.Disk, name, content string) error {
			return d.Replace(name, []byte(content), 0o600)
		})] = true
	}
	for _, possible := range []string{"gone", "first", "second", "", "sec", "sec\x00\x00\x00"} {
		if !seen[possible] {
			t.Errorf("no power failure has left %q, only %v", possible, seen)
		}
	}
}

// Each visits each step of an operation, and a killed process changes nothing afterwards.
func TestEach(t *testing.T) {
	kills := 0
	disk.Each(t, func(t *testing.T, c *disk.Case) {
		dir := t.TempDir()
		c.Name(dir, "test")
		name := filepath.Join(dir, "file")
		struck := c.During(t, func() {
			err := c.Disk.Disk().ReplaceDurably(name, []byte("content"), 0o600)
			if (err == nil) != (c.Struck() == disk.Nothing) {
				t.Errorf("error %v after %s", err, c.Struck())
			}
		})
		if struck.Kills() {
			kills++
		}
		if left := disk.Leftovers(dir); len(left) > 0 && !struck.Kills() && !c.Power {
			t.Errorf("left: %v", left)
		}
		if content, err := os.ReadFile(name); !c.Power && err == nil && string(content) != "content" {
			t.Errorf("the file has %q", content)
		}
	})
	if want := 2 * 2 * (len(disk.Durable) - 1); kills != want { // without the removal of a temporary file
		t.Errorf("the process was killed %d times, want %d", kills, want)
	}
}

// A seed repeats its faults.
func TestSeed(t *testing.T) {
	story := func() []string {
		d, dir := disk.New(7), t.TempDir()
		d.Name(dir, "test")
		for range 100 {
			d.Randomly(func() { _ = d.Disk().Replace(filepath.Join(dir, "file"), []byte("content"), 0o600) })
		}
		return d.Story()
	}
	first, second := story(), story()
	if len(first) < 50 || !slices.Equal(first, second) {
		t.Errorf("%d faults %q, then %q", len(first), first, second)
	}
}

// Who tries again gets through, even while the disk knows a single failpoint.
func TestRandomlyWithoutFault(t *testing.T) {
	d, dir := disk.New(7), t.TempDir()
	d.Name(dir, "test")
	for range 1000 {
		err := errors.New("killed")
		if d.Randomly(func() { _, err = d.Disk().Folder(dir) }); len(d.Story()) > 0 && err == nil {
			return
		}
	}
	t.Errorf("1000 faults in a row: %q", slices.Compact(d.Story()))
}
