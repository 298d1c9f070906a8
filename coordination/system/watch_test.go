// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/goleak"

	"github.com/tandem-k8s/tandem/coordination/system"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a Watch for the time of a test. The channel holds the result of the newest look.
func start(t *testing.T, w system.Watch, see func() string) <-chan string {
	t.Helper()
	looks, ended := make(chan string, 1), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		ended <- w.Run(ctx, func() error {
			seen := see()
			select {
			case <-looks:
			default:
			}
			looks <- seen
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return looks
}

// names lists the entries of a folder, "none" if the folder is absent.
func names(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "none"
	}
	var list []string
	for _, entry := range entries {
		list = append(list, entry.Name())
	}
	return strings.Join(list, " ")
}

func namesOf(dir string) func() string { return func() string { return names(dir) } }

// await waits for a look that sees the given names.
func await(t *testing.T, looks <-chan string, want string) {
	t.Helper()
	late, last := time.After(20*time.Second), ""
	for {
		select {
		case last = <-looks:
			if last == want {
				return
			}
		case <-late:
			t.Fatalf("no look sees %q; the last one saw %q", want, last)
		}
	}
}

func write(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The interval is an hour, so that only events can lead to looks.
func TestEvents(t *testing.T) {
	dir := t.TempDir()
	looks := start(t, system.Watch{Paths: []string{dir}, Interval: time.Hour}, namesOf(dir))
	await(t, looks, "")
	write(t, dir, "a")
	await(t, looks, "a")
	check(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "b")))
	await(t, looks, "b")
	check(t, os.Remove(filepath.Join(dir, "b")))
	await(t, looks, "")
}

// A folder that is removed or replaced is watched again once a look finds a folder at the path.
func TestFolderMadeAgain(t *testing.T) {
	for name, remove := range map[string]func(dir string) error{
		"removed":  os.RemoveAll,
		"replaced": func(dir string) error { return os.Rename(dir, dir+"-old") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "folder")
			check(t, os.Mkdir(dir, 0o700))
			watcher, err := fsnotify.NewWatcher()
			check(t, err)
			looks := start(t, system.Watch{
				Paths: []string{dir}, Interval: time.Hour, Polling: 10 * time.Millisecond,
				Open: func() (*fsnotify.Watcher, error) { return watcher, nil },
			}, namesOf(dir))
			await(t, looks, "")
			check(t, remove(dir))
			await(t, looks, "none")
			check(t, os.Mkdir(dir, 0o700))
			for len(watcher.WatchList()) == 0 {
				await(t, looks, "")
			}
			write(t, dir, "a")
			await(t, looks, "a")
			write(t, dir, "b") // there is an hour until the next look without an event
			await(t, looks, "a b")
		})
	}
}

// A full kernel queue loses events. A later look sees their effects, and later events lead to looks.
func TestOverflow(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	check(t, err)
	room, err := strconv.Atoi(strings.TrimSpace(string(text)))
	check(t, err)
	if room > 1<<16 {
		t.Skipf("the queue has room for %d events", room)
	}
	dir := t.TempDir()
	write(t, dir, "a")
	write(t, dir, "b")
	watching, goOn := make(chan struct{}, 1), make(chan struct{})
	looks := start(t, system.Watch{Paths: []string{dir}, Interval: time.Hour}, func() string {
		select {
		case watching <- struct{}{}:
		default:
		}
		<-goOn
		return names(dir)
	})
	<-watching
	for i := range room + 8192 { // fsnotify reads 4096 events ahead
		check(t, os.Chmod(filepath.Join(dir, []string{"a", "b"}[i%2]), 0o600))
	}
	write(t, dir, "c") // the event is lost
	close(goOn)
	await(t, looks, "a b c")
	for quiet := false; !quiet; {
		select {
		case <-looks:
		case <-time.After(100 * time.Millisecond):
			quiet = true
		}
	}
	write(t, dir, "d")
	await(t, looks, "a b c d")
}

// At a limit of inotify the paths are polled, and one warning says so.
func TestLimitReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, log, attempts := t.TempDir(), &bytes.Buffer{}, 0
		looks := start(t, system.Watch{
			Paths: []string{dir}, Interval: time.Hour, Polling: time.Second,
			Log: slog.New(slog.NewTextHandler(log, nil)),
			Open: func() (*fsnotify.Watcher, error) {
				attempts++
				return nil, syscall.EMFILE
			},
		}, namesOf(dir))
		await(t, looks, "")
		write(t, dir, "a")
		began := time.Now()
		await(t, looks, "a")
		if took := time.Since(began); took != time.Second {
			t.Errorf("seen after %s", took)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if warnings := strings.Count(log.String(), "level=WARN"); warnings != 1 || attempts < 60 {
			t.Errorf("%d attempts to use inotify, %d warnings:\n%s", attempts, warnings, log)
		}
	})
}

// Events are used once inotify is available.
func TestLimitIsOver(t *testing.T) {
	dir, attempts := t.TempDir(), 0
	available := make(chan struct{})
	looks := start(t, system.Watch{
		Paths: []string{dir}, Interval: time.Hour, Polling: 10 * time.Millisecond,
		Open: func() (*fsnotify.Watcher, error) {
			if attempts++; attempts < 3 {
				return nil, syscall.EMFILE
			}
			close(available)
			return fsnotify.NewWatcher()
		},
	}, namesOf(dir))
	<-available
	write(t, dir, "a")
	await(t, looks, "a")
	write(t, dir, "b") // there is an hour until the next look without an event
	await(t, looks, "a b")
}

// A look comes after the interval without an event too.
func TestInterval(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "b")
	looks := start(t, system.Watch{Paths: []string{dir + "/b"}, Interval: 10 * time.Millisecond}, namesOf(dir))
	await(t, looks, "b")
	write(t, dir, "a") // no event: another file is watched
	await(t, looks, "a b")
}

// A file that takes the place of another one has another identity, and so has a file that is written again.
func TestIdentify(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if _, ok := system.Identify(path); ok {
		t.Error("an absent file has an identity")
	}
	write(t, dir, "a")
	first, ok := system.Identify(path)
	if again, _ := system.Identify(path); !ok || again != first {
		t.Errorf("%v, then %v", first, again)
	}
	write(t, dir, "b")
	check(t, os.Rename(filepath.Join(dir, "b"), path))
	second, _ := system.Identify(path)
	check(t, os.Chtimes(path, time.Time{}, time.Unix(1, 0)))
	if third, _ := system.Identify(path); second == first || third == second {
		t.Errorf("%v, then %v, then %v", first, second, third)
	}
}
