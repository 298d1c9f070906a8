// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/coordination/publish/facts"
	"github.com/tandem-k8s/tandem/test/disk"
)

// Whichever step of the feature file fails, or ends the daemon: without a power failure the file is the old
// or the new one; and the next write completes the file, and removes temporary files.
func TestEveryStepOfTheFeatureFile(t *testing.T) {
	disk.Each(t, func(t *testing.T, fault *disk.Case) {
		dir := t.TempDir()
		fault.Name(dir, "feature file")
		path, text := filepath.Join(dir, "tandem"), "a=1\nb=1\n"
		write := func() error {
			sink := publish.NewFile(fault.Disk.Disk(), "nfd-file", path,
				func(facts.Facts, time.Time) []byte { return []byte(text) })
			_, err := sink.Write(t.Context(), facts.Facts{})
			return err
		}
		read := func() string {
			content, err := os.ReadFile(path)
			if err != nil && !fault.Power {
				t.Error(err)
			}
			return string(content)
		}
		if err := write(); err != nil {
			t.Fatal(err)
		}
		before := text
		text = "a=2\nb=2\n"
		var err error
		struck := fault.During(t, func() { err = write() })
		if !struck.Kills() && (err == nil) != (struck == disk.Nothing) {
			t.Errorf("error %v after %v", err, struck)
		}
		if got := read(); !fault.Power && got != before && got != text {
			t.Errorf("the file is neither the old nor the new one: %q", got)
		}
		disk.Age(t, dir)
		if err := write(); err != nil {
			t.Error(err)
		}
		if got := read(); got != text {
			t.Errorf("after the next write: %q", got)
		}
		text = "a=3\n"
		if err := write(); err != nil {
			t.Error(err)
		}
		if left := disk.Leftovers(dir); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}
