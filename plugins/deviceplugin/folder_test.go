// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/tandem-k8s/tandem/coordination/system"
)

// unwatched is a folder that the kernel has no watch for.
func unwatched(t *testing.T) *folder {
	t.Helper()
	f, err := openFolder(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	f.watch.Open = func() (*fsnotify.Watcher, error) { return nil, syscall.EMFILE }
	return f
}

// A folder that cannot be watched is looked at: a kubelet.sock is seen within the pause, and one that takes
// its place too.
func TestFolderWithoutWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := unwatched(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- f.run(ctx) }()
		for _, name := range []string{"first", "second"} {
			seen := make(chan system.Identity, 1)
			before, _ := f.kubelet()
			go func() {
				kubelet, _ := f.awaitKubelet(ctx, before, nil)
				seen <- kubelet
			}()
			synctest.Wait()
			if len(seen) > 0 {
				t.Errorf("seen before the %s kubelet.sock is there", name)
			}
			if err := os.WriteFile(f.path(name), []byte(name), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(f.path(name), f.path(kubeletSocket)); err != nil {
				t.Fatal(err)
			}
			<-time.After(pollPause)
			synctest.Wait()
			if len(seen) == 0 || <-seen == before {
				t.Fatalf("the %s kubelet.sock is not seen after %s", name, pollPause)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestFolderWithoutWatchIsRemoved(t *testing.T) {
	for name, disturb := range map[string]func(dir string) error{
		"removed": os.RemoveAll,
		"replaced": func(dir string) error {
			if err := os.Rename(dir, dir+"-old"); err != nil {
				return err
			}
			return os.Mkdir(dir, 0o750)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := unwatched(t)
			ended := make(chan error, 1)
			go func() { ended <- f.run(t.Context()) }()
			<-time.After(pollPause)
			synctest.Wait()
			if len(ended) > 0 {
				t.Fatalf("ended with %v while the folder is there", <-ended)
			}
			if err := disturb(f.dir); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err == nil || !strings.Contains(err.Error(), "folder was removed") {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}
