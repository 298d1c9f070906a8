// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/test/disk"
)

// example is what the tests keep.
type example struct {
	Pods []string `json:"pods"`
}

var train = example{[]string{"train"}}

func open(t *testing.T, dir string, log *slog.Logger) *store[example] {
	t.Helper()
	store, err := openStore[example](system.Disk{}, dir, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.folder.Close() })
	return store
}

// A server whose folder was replaced does not write into that of the next one.
func TestStoreKeepsToItsFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	old := open(t, dir, slog.New(slog.NewTextHandler(&log, nil)))
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	old.write(train)
	if _, err := os.Lstat(filepath.Join(dir, StateFile)); !errors.Is(err, fs.ErrNotExist) ||
		strings.Count(log.String(), "\n") != 1 {
		t.Errorf("checkpoint of the old server: %v, log %q", err, log.String())
	}
}

// A write that fails is tried again, though nothing changes: the file of before is not the next server's.
func TestFailedWriteIsTriedAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		failing := disk.New(1)
		store, err := openStore[example](failing.Disk(), dir, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		failing.At(1, disk.Fails)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- store.run(ctx, func() example { return train }) }()
		store.changed.Fire()
		synctest.Wait()
		if _, err := os.Lstat(filepath.Join(dir, StateFile)); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("after a write that fails: %v", err)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if saved, err := readStore[example](dir, ""); err != nil || !slices.Equal(saved.Pods, train.Pods) {
			t.Errorf("the file has %v, %v; want %v", saved, err, train)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// boot is the ID of the running kernel's boot.
func boot(t *testing.T) string {
	t.Helper()
	id, err := system.Disk{}.BootID()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// What cannot be trusted is set aside, with a warning, and the next one is written.
func TestBadCheckpointIsSetAside(t *testing.T) {
	t.Parallel()
	good, err := encodeState(boot(t), train)
	if err != nil {
		t.Fatal(err)
	}
	other, err := encodeState(boot(t), []string{"pods_of_tomorrow"})
	if err != nil {
		t.Fatal(err)
	}
	put := func(content []byte, mode os.FileMode) func(string) error {
		return func(name string) error {
			return errors.Join(os.WriteFile(name, content, 0o600), os.Chmod(name, mode))
		}
	}
	version := fmt.Appendf(nil, `"version":%d`, stateVersion)
	for name, tc := range map[string]struct {
		put    func(name string) error
		reason string
	}{
		"empty":       {put(nil, 0o600), "parse"},
		"truncated":   {put(good[:len(good)/2], 0o600), "parse"},
		"changed":     {put(bytes.Replace(good, []byte("train"), []byte("trail"), 1), 0o600), "checksum"},
		"no version":  {put(bytes.Replace(good, version, []byte(`"version":0`), 1), 0o600), "version 0"},
		"no checksum": {put(bytes.Replace(good, []byte("checksum"), []byte("sum"), 1), 0o600), "checksum"},
		"other type":  {put(other, 0o600), "cannot unmarshal array"},
		"writable":    {put(good, 0o622), "without write permission for other users"},
		"too large":   {put(make([]byte, maxState+1), 0o600), "more than"},
		"link":        {func(name string) error { return os.Symlink("/dev/zero", name) }, "symbolic links"},
		"folder":      {func(name string) error { return os.Mkdir(name, 0o700) }, "has to be a regular file"},
		"pipe":        {func(name string) error { return syscall.Mkfifo(name, 0o600) }, "be a regular file"},
		"foreign": {func(name string) error {
			return errors.Join(put(good, 0o600)(name), os.Chown(name, 4242, 4242))
		}, "has to be a regular file of user"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := tc.put(filepath.Join(dir, StateFile)); errors.Is(err, syscall.EPERM) {
				t.Skip("needs root to make a file of somebody else")
			} else if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			store := open(t, dir, slog.New(slog.NewTextHandler(&log, nil)))
			if got, ok := store.load(); ok || strings.Count(log.String(), "\n") != 1 ||
				!strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), tc.reason) {
				t.Errorf("%v, %v, log %q, want a warning with %q", got, ok, log.String(), tc.reason)
			}
			if _, err := os.Lstat(filepath.Join(dir, badStateFile)); err != nil {
				t.Errorf("it was not kept: %v", err)
			}
			store.write(train)
			if got, err := readStore[example](dir, ""); err != nil || !slices.Equal(got.Pods, train.Pods) {
				t.Errorf("the next one: %v, %v", got, err)
			}
		})
	}
}

// TestNewerFileStays: the state of a newer version is left to that version, and the server's own is lost.
func TestNewerFileStays(t *testing.T) {
	t.Parallel()
	good, err := encodeState(boot(t), train)
	if err != nil {
		t.Fatal(err)
	}
	newer := bytes.Replace(good, fmt.Appendf(nil, `"version":%d`, stateVersion), []byte(`"version":99`), 1)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, StateFile), newer, 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	store := open(t, dir, slog.New(slog.NewTextHandler(&log, nil)))
	if got, ok := store.load(); ok || !strings.Contains(log.String(), "version 99") {
		t.Errorf("%v, %v, log %q", got, ok, log.String())
	}
	store.write(train)
	if content, err := os.ReadFile(filepath.Join(dir, StateFile)); !bytes.Equal(content, newer) {
		t.Errorf("the file has become %q, %v", content, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, badStateFile)); err == nil {
		t.Error("the file was set aside")
	}
}

func TestCheckpointOfAnotherBootIsLeft(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store := open(t, dir, slog.New(slog.DiscardHandler))
	store.boot = "before"
	store.write(train)
	store.boot = boot(t)
	if c, ok := store.load(); ok {
		t.Errorf("loaded %v", c)
	}
	if c, err := readStore[example](dir, ""); err == nil {
		t.Errorf("read %v", c)
	}
	store.write(train)
	if _, ok := store.load(); !ok {
		t.Error("that of this boot was not loaded")
	}
}

// Whatever is in the file, reading it ends with a value or an error.
func FuzzDecode(f *testing.F) {
	good, err := encodeState("boot", train)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(fmt.Appendf(nil, `{"version":%d,"checksum":0,"value":{}}`, stateVersion))
	f.Fuzz(func(t *testing.T, content []byte) {
		value, boot, err := decodeState[example](content)
		if err != nil {
			return
		}
		again, err := encodeState(boot, value)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := decodeState[example](again); err != nil {
			t.Errorf("what was read cannot be read again: %v", err)
		}
	})
}
