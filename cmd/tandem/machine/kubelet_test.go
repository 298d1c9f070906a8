// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestChangedSince(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(file, long, long); err != nil { // a copy that keeps its times
		t.Fatal(err)
	}
	now := time.Now() // not before the last change: a file that changes later is one of the future
	const minute = time.Minute
	if got := (Process{Age: minute}).ChangedSince(now.Add(-minute), file); len(got) > 0 {
		t.Errorf("a file of the future: %q", got)
	}
	for age, want := range map[time.Duration]int{0: 0, time.Millisecond: 0, minute: 1} {
		if got := (Process{Age: age}).ChangedSince(now, file, file+".none"); len(got) != want {
			t.Errorf("of a process that runs for %v: %q", age, got)
		}
	}
}
