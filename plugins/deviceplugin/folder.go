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
	"time"

	"github.com/tandem-k8s/tandem/coordination/system"
)

// kubeletSocket is the kubelet's registration socket (KubeletSocket in k8s.io/kubelet's
// v1beta1/constants.go).
const kubeletSocket = "kubelet.sock"

// pluginsFolder is the directory of the plugins' sockets and the kubelet's socket, below the kubelet's root
// directory.
const pluginsFolder = "device-plugins"

// pollPause is the interval between two checks of a directory while inotify is not available.
const pollPause = time.Second

// folder is the kubelet's device plugin directory. Its content is the source of truth; an event only triggers
// a check.
type folder struct {
	dir    string
	opened os.FileInfo
	watch  system.Watch
	look   chan struct{} // holds a token if the directory may have changed
}

// openFolder opens a directory.
func openFolder(dir string, log *slog.Logger) (*folder, error) {
	info, err := statFolder(dir)
	if err != nil {
		return nil, err
	}
	watch := system.Watch{Paths: []string{dir}, Interval: lookPause, Polling: pollPause, Log: log}
	return &folder{dir: dir, opened: info, watch: watch, look: make(chan struct{}, 1)}, nil
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

// run creates tokens until ctx is done: after each possible change, and periodically. It ends when the
// directory itself is gone: the restarted process then looks for a new directory.
func (f *folder) run(ctx context.Context) error {
	return f.watch.Run(ctx, func() error {
		if now, err := os.Stat(f.dir); errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, f.opened) {
			return fmt.Errorf("watch %s: the folder was removed: start again once the kubelet has made it anew", f.dir)
		}
		select {
		case f.look <- struct{}{}:
		default:
		}
		return nil
	})
}

func (f *folder) path(name string) string { return filepath.Join(f.dir, name) }

func (f *folder) has(name string) bool {
	_, err := os.Lstat(f.path(name))
	return err == nil
}

// kubelet returns the identity of the current kubelet.sock.
func (f *folder) kubelet() (system.Identity, bool) { return system.Identify(f.path(kubeletSocket)) }

// isNewKubelet reports whether a kubelet.sock other than the known one exists.
func (f *folder) isNewKubelet(known system.Identity) bool {
	now, ok := f.kubelet()
	return ok && now != known
}

// awaitKubelet waits for a kubelet.sock; it returns false when ctx is done.
func (f *folder) awaitKubelet(ctx context.Context) (system.Identity, bool) {
	for {
		if kubelet, ok := f.kubelet(); ok {
			return kubelet, true
		}
		select {
		case <-f.look:
		case <-ctx.Done():
			return system.Identity{}, false
		}
	}
}

// awaitNewKubelet waits for a kubelet.sock other than the known one, for the given time at most, or until ctx
// is done.
func (f *folder) awaitNewKubelet(ctx context.Context, known system.Identity, limit time.Duration) {
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
