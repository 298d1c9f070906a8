// SPDX-License-Identifier: Apache-2.0

package system

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Watch looks at files and folders whenever they may have changed: after inotify events, and periodically,
// because events can get lost and are not available everywhere. Events carry no data. Each look reads the
// current state, so a lost event costs time only. A path need not exist: Run watches the file or folder that
// is currently at the path.
type Watch struct {
	Paths    []string      // for a folder, changes of its entries count too
	Interval time.Duration // maximum time between two looks
	Polling  time.Duration // the same while inotify is not available for a path; 0 for Interval
	Log      *slog.Logger  // nil for none
	// Open creates the source of events; nil for fsnotify.NewWatcher.
	Open func() (*fsnotify.Watcher, error)
}

// Run calls look at once, after each event, and when the interval has passed without one, until ctx is done
// or look returns an error, which Run returns.
func (w Watch) Run(ctx context.Context, look func() error) error {
	s := source{Watch: w}
	defer s.closeWatcher()
	for {
		pause := s.followPaths()
		if err := look(); err != nil {
			return err
		}
		if !s.awaitEvent(ctx, pause) {
			return nil
		}
	}
}

// source is the source of events of a Watch.
type source struct {
	Watch
	watcher *fsnotify.Watcher // nil if inotify is not available
	warned  bool
}

func (s *source) closeWatcher() {
	if s.watcher != nil {
		_ = s.watcher.Close()
	}
}

// followPaths watches the files and folders that are currently at the paths, and returns the time until the
// next look without an event.
func (s *source) followPaths() time.Duration {
	err := s.addPaths()
	if err == nil {
		s.warned = false
		return s.Interval
	}
	pause := cmp.Or(s.Polling, s.Interval)
	if absent := errors.Is(err, fs.ErrNotExist); !absent && !s.warned && s.Log != nil {
		s.Log.Warn("inotify not available; polling; a higher fs.inotify.max_user_instances or "+
			"max_user_watches may help", "paths", s.Paths, "interval", pause, "error", err)
		s.warned = true
	}
	return pause
}

// addPaths adds all paths. Adding a path again has no effect unless the path has a new file or folder.
func (s *source) addPaths() error {
	if s.watcher == nil {
		open := s.Open
		if open == nil {
			open = fsnotify.NewWatcher
		}
		watcher, err := open()
		if err != nil {
			return fmt.Errorf("open inotify: %w", err)
		}
		s.watcher = watcher
	}
	var failed error // an absent path counts only if nothing else is wrong
	for _, path := range s.Paths {
		if err := s.watcher.Add(path); err != nil && (failed == nil || errors.Is(failed, fs.ErrNotExist)) {
			failed = fmt.Errorf("watch %s: %w", path, err)
		}
	}
	return failed
}

// awaitEvent waits for an event, or for the end of the pause; it returns false when ctx is done.
func (s *source) awaitEvent(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	var events <-chan fsnotify.Event
	var lost <-chan error // such as an overflow of the kernel's queue
	if s.watcher != nil {
		events, lost = s.watcher.Events, s.watcher.Errors
	}
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-events:
	case <-lost:
	}
	return ctx.Err() == nil
}

// Identity distinguishes a file from a later file at the same path, and from its own earlier content. It
// includes the time of the last modification because inode numbers are reused.
type Identity struct {
	device, inode uint64
	modified      int64 // nanoseconds since 1970
}

// Identify returns the identity of the file at a path; false if no file can be found there.
func Identify(path string) (Identity, bool) {
	info, err := os.Stat(path)
	if err != nil {
		return Identity{}, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Identity{}, false
	}
	return Identity{
		device: uint64(stat.Dev), // an int32 on macOS
		inode:  stat.Ino, modified: info.ModTime().UnixNano(),
	}, true
}
