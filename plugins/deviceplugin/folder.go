// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// kubeletSocket is the kubelet's registration socket (KubeletSocket in k8s.io/kubelet's
// v1beta1/constants.go).
const kubeletSocket = "kubelet.sock"

// pluginsFolder is the directory of the plugins' sockets and the kubelet's socket, below the kubelet's root
// directory.
const pluginsFolder = "device-plugins"

// pollPause is the interval between two checks of a directory that cannot be watched.
const pollPause = time.Second

// folder is the kubelet's device plugin directory. Its content is the source of truth; an event only triggers
// a check.
type folder struct {
	dir     string
	opened  os.FileInfo
	watcher *fsnotify.Watcher // nil if the directory cannot be watched
	look    chan struct{}     // holds a token if the directory may have changed
}

// identity distinguishes a kubelet.sock from a later one at the same path. It includes the time because inode
// numbers are reused.
type identity struct {
	device, inode uint64
	made          syscall.Timespec
}

// openFolder opens a directory. If the kernel has no inotify watch left, the directory is polled.
func openFolder(dir string, log *slog.Logger) (*folder, error) {
	info, err := statFolder(dir)
	if err != nil {
		return nil, err
	}
	f := &folder{dir: dir, opened: info, look: make(chan struct{}, 1)}
	if f.watcher, err = watch(dir); err != nil {
		log.Warn("cannot watch the kubelet's folder: look at it from time to time; more of "+
			"fs.inotify.max_user_instances may help",
			"folder", dir, "interval", pollPause, "error", err)
	}
	return f, nil
}

// CheckFolder checks that a kubelet's root directory contains the device plugin directory. Its error says
// what to check.
func CheckFolder(kubeletDir string) error {
	_, err := statFolder(filepath.Join(kubeletDir, pluginsFolder))
	return err
}

func statFolder(dir string) (os.FileInfo, error) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("open %s: the folder does not exist: check that a kubelet runs on this node and "+
			"that --kubelet-dir is its root folder", dir)
	case err != nil:
		return nil, fmt.Errorf("open folder: %w", err)
	case !info.IsDir():
		return nil, fmt.Errorf("open %s: not a folder: check --kubelet-dir", dir)
	}
	return info, nil
}

func watch(dir string) (*fsnotify.Watcher, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	if err := watcher.Add(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("watch %s: %w", dir, err), watcher.Close())
	}
	return watcher, nil
}

func (f *folder) close() error {
	if f.watcher == nil {
		return nil
	}
	if err := f.watcher.Close(); err != nil {
		return fmt.Errorf("stop watching %s: %w", f.dir, err)
	}
	return nil
}

// run creates tokens until ctx is done. It ends when the directory itself is gone: the restarted process then
// looks for a new directory.
func (f *folder) run(ctx context.Context) error {
	follow := f.follow
	if f.watcher == nil {
		follow = f.poll
	}
	err := follow(ctx)
	return errors.Join(err, f.close())
}

// follow creates a token for every event. Lost events (a full queue) create a token as well.
func (f *folder) follow(ctx context.Context) error {
	for {
		select {
		case event := <-f.watcher.Events:
			gone := event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename)
			if gone && event.Name == f.dir {
				return f.removed()
			}
			if !gone && !event.Has(fsnotify.Create) {
				continue
			}
		case <-f.watcher.Errors:
		case <-ctx.Done():
			return nil
		}
		f.mayHaveChanged()
	}
}

// poll creates a token every pollPause.
func (f *folder) poll(ctx context.Context) error {
	ticker := time.NewTicker(pollPause)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		if now, err := os.Stat(f.dir); errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, f.opened) {
			return f.removed()
		}
		f.mayHaveChanged()
	}
}

func (f *folder) removed() error {
	return fmt.Errorf("watch %s: the folder was removed: start again once the kubelet has made it anew", f.dir)
}

func (f *folder) mayHaveChanged() {
	select {
	case f.look <- struct{}{}:
	default:
	}
}

func (f *folder) path(name string) string { return filepath.Join(f.dir, name) }

func (f *folder) has(name string) bool {
	_, err := os.Lstat(f.path(name))
	return err == nil
}

// kubelet returns the identity of the current kubelet.sock.
func (f *folder) kubelet() (identity, bool) {
	info, err := os.Stat(f.path(kubeletSocket))
	if err != nil {
		return identity{}, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}, false
	}
	return identity{device: stat.Dev, inode: stat.Ino, made: stat.Mtim}, true
}

// isNewKubelet reports whether a kubelet.sock other than the known one exists.
func (f *folder) isNewKubelet(known identity) bool {
	now, ok := f.kubelet()
	return ok && now != known
}

// awaitKubelet waits for a kubelet.sock; it returns false when ctx is done.
func (f *folder) awaitKubelet(ctx context.Context) (identity, bool) {
	for {
		if kubelet, ok := f.kubelet(); ok {
			return kubelet, true
		}
		select {
		case <-f.look:
		case <-ctx.Done():
			return identity{}, false
		}
	}
}

// awaitNewKubelet waits for a kubelet.sock other than the known one, for the given time at most, or until ctx
// is done.
func (f *folder) awaitNewKubelet(ctx context.Context, known identity, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for !f.isNewKubelet(known) {
		select {
		case <-f.look:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
