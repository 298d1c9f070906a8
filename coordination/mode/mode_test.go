// SPDX-License-Identifier: Apache-2.0

package mode_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/tandem-k8s/tandem/coordination/mode"
)

// enterIn has this program, started again, enter a mode in a folder, say so and wait for the end of its
// input.
const enterIn = "TANDEM_TEST_ENTER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(enterIn); dir != "" {
		_, err := mode.Enter(mode.DRA, dir)
		fmt.Fprintln(os.Stdout, "entered", err)
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		return
	}
	goleak.VerifyTestMain(m)
}

func enter(t *testing.T, m mode.Mode, dir string, others ...string) (leave func()) {
	t.Helper()
	leave, err := mode.Enter(m, dir, others...)
	if err != nil {
		t.Fatal(err)
	}
	leave = sync.OnceFunc(leave)
	t.Cleanup(leave)
	return leave
}

func refused(t *testing.T, m, by mode.Mode, dir string, others ...string) string {
	t.Helper()
	_, err := mode.Enter(m, dir, others...)
	held := (*mode.HeldError)(nil)
	if !errors.As(err, &held) || held.Mode != by {
		t.Fatalf("mode %s: %v, want it refused because of %s", m, err, by)
	}
	return err.Error()
}

func TestOneModeAtATime(t *testing.T) {
	for _, c := range []struct {
		own, other mode.Mode
		words      []string
	}{
		{mode.DevicePlugin, mode.DRA, []string{"tandem-gpu and tandem-rdma", "mode-device-plugin.lock"}},
		{mode.DRA, mode.DevicePlugin, []string{"tandem-dra", "mode-dra.lock"}},
	} {
		dir := t.TempDir()
		first, second := enter(t, c.own, dir), enter(t, c.own, dir)
		for _, word := range append(c.words, "docs/dra.md") {
			if text := refused(t, c.other, c.own, dir); !strings.Contains(text, word) {
				t.Errorf("%q lacks %q", text, word)
			}
		}
		first()
		refused(t, c.other, c.own, dir)
		second()
		leave := enter(t, c.other, dir)
		refused(t, c.own, c.other, dir)
		leave()
		enter(t, c.own, dir)()
	}
}

// TestOtherFolder: the daemons of the two modes may have been told different run folders.
func TestOtherFolder(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	leave := enter(t, mode.DevicePlugin, there)
	refused(t, mode.DRA, mode.DevicePlugin, here, here, there)
	leave()
	enter(t, mode.DRA, here, here, there, filepath.Join(there, "none"))
}

func TestRunning(t *testing.T) {
	dir := t.TempDir()
	if got := mode.Running(dir); len(got) > 0 {
		t.Errorf("%v in a new folder", got)
	}
	leave := enter(t, mode.DRA, dir)
	if got := mode.Running(dir); !slices.Equal(got, []mode.Mode{mode.DRA}) {
		t.Errorf("%v, want dra", got)
	}
	leave()
	if got := mode.Running(dir); len(got) > 0 {
		t.Errorf("%v after it left", got)
	}
}

// TestKilled: a process that is killed leaves nothing behind.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), enterIn+"="+dir)
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
	refused(t, mode.DevicePlugin, mode.DRA, dir)
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait()
	enter(t, mode.DevicePlugin, dir)
}

// TestBothAtOnce: of two that start at once at least one is refused.
func TestBothAtOnce(t *testing.T) {
	dir := t.TempDir()
	for range 200 {
		var both sync.WaitGroup
		leaves := make(chan func(), 2)
		for _, m := range mode.Modes {
			both.Go(func() {
				if leave, err := mode.Enter(m, dir); err == nil {
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
	if err := os.WriteFile(mode.Path(dir, mode.DRA), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var starts sync.WaitGroup
	for range 2 {
		starts.Go(func() {
			for range 5000 {
				leave, err := mode.Enter(mode.DevicePlugin, dir)
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

func TestFolderThatIsNot(t *testing.T) {
	if _, err := mode.Enter(mode.DRA, filepath.Join(t.TempDir(), "none")); err == nil ||
		!strings.Contains(err.Error(), "enter mode dra") {
		t.Errorf("%v", err)
	}
}
