// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tandem-k8s/tandem/test/scale"
)

func inMode(t *testing.T, m Mode, dir string, others ...string) (leave func()) {
	t.Helper()
	leave, err := enterMode(m, dir, others...)
	if err != nil {
		t.Fatal(err)
	}
	leave = sync.OnceFunc(leave)
	t.Cleanup(leave)
	return leave
}

func refusedMode(t *testing.T, m, by Mode, dir string, others ...string) string {
	t.Helper()
	_, err := enterMode(m, dir, others...)
	held := (*ModeError)(nil)
	if !errors.As(err, &held) || held.Mode != by {
		t.Fatalf("mode %s: %v, want it refused because of %s", m, err, by)
	}
	return err.Error()
}

func TestOneModeAtATime(t *testing.T) {
	for _, c := range []struct {
		own, other Mode
		words      []string
	}{
		{DevicePlugin, DRA, []string{"tandem-gpu and tandem-rdma", "mode-device-plugin.lock"}},
		{DRA, DevicePlugin, []string{"tandem-dra", "mode-dra.lock"}},
	} {
		dir := t.TempDir()
		first, second := inMode(t, c.own, dir), inMode(t, c.own, dir)
		for _, word := range append(c.words, "docs/dra.md") {
			if text := refusedMode(t, c.other, c.own, dir); !strings.Contains(text, word) {
				t.Errorf("%q lacks %q", text, word)
			}
		}
		first()
		refusedMode(t, c.other, c.own, dir)
		second()
		leave := inMode(t, c.other, dir)
		refusedMode(t, c.own, c.other, dir)
		leave()
		inMode(t, c.own, dir)()
	}
}

// TestOtherFolder: the daemons of the two modes may have been told different run folders.
func TestOtherFolder(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	leave := inMode(t, DevicePlugin, there)
	refusedMode(t, DRA, DevicePlugin, here, here, there)
	leave()
	inMode(t, DRA, here, here, there, filepath.Join(there, "none"))
}

func TestRunningModes(t *testing.T) {
	dir := t.TempDir()
	if got := RunningModes(dir); len(got) > 0 {
		t.Errorf("%v in a new folder", got)
	}
	leave := inMode(t, DRA, dir)
	if got := RunningModes(dir); len(got) != 1 || got[0].Mode != DRA {
		t.Errorf("%v, want dra", got)
	}
	leave()
	if got := RunningModes(dir); len(got) > 0 {
		t.Errorf("%v after it left", got)
	}
}

// TestKilled: a process that is killed leaves nothing behind.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	other := child(t, "mode", dir)
	if _, err := other.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "entered <nil>\n" {
		t.Fatalf("%q, %v", line, err)
	}
	refusedMode(t, DevicePlugin, DRA, dir)
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait()
	inMode(t, DevicePlugin, dir)
}

// TestBothAtOnce: of two that start at once at least one is refused.
func TestBothAtOnce(t *testing.T) {
	dir := t.TempDir()
	for range scale.Rounds(200) {
		var both sync.WaitGroup
		leaves := make(chan func(), 2)
		for _, m := range modes {
			both.Go(func() {
				if leave, err := enterMode(m, dir); err == nil {
					leaves <- leave
				}
			})
		}
		both.Wait()
		close(leaves)
		in := 0
		for leave := range leaves {
			in++
			leave()
		}
		if in > 1 {
			t.Fatal("both modes at once")
		}
	}
}

// TestChecksAtOnce: after a migration the lock file of the other mode remains, and no process holds the lock.
// Daemons that start at the same time check the lock at the same time, and none is refused.
func TestChecksAtOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(modeLock(dir, DRA), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var starts sync.WaitGroup
	for range 2 {
		starts.Go(func() {
			for range scale.Rounds(5000) {
				leave, err := enterMode(DevicePlugin, dir)
				if err != nil {
					t.Error(err)
					return
				}
				leave()
			}
		})
	}
	starts.Wait()
}

func TestModeWithoutFolder(t *testing.T) {
	if _, err := enterMode(DRA, filepath.Join(t.TempDir(), "none")); err == nil ||
		!strings.Contains(err.Error(), "enter mode dra") {
		t.Errorf("%v", err)
	}
}
