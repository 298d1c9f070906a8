// SPDX-License-Identifier: Apache-2.0

// Package store keeps what a server has to know again after it died, in one file of the run folder.
package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// FileName is the file below the run folder; BadName is where one goes that cannot be trusted. Only one is
// kept.
const (
	FileName = "coordinator.json"
	BadName  = FileName + ".bad"
	tempName = FileName + ".new"
)

// ledgerName is the file of earlier versions, in which they had who holds what. It is removed: were one of
// them to serve again, it would go on from what is long over.
const ledgerName = "ledger.json"

// Version is that of the format. A file of another version is set aside: nothing depends on it.
const Version = 1

// MaxSize bounds the file, in bytes: a thousand devices take about 100 KiB, so that it is good for several
// resources of resources.MaxDevices.
const MaxSize = 16 << 20

// envelope is the file.
type envelope struct {
	Version  int             `json:"version"`
	Boot     string          `json:"boot"`     // /proc/sys/kernel/random/boot_id: after a reboot the devices can be others
	Checksum uint32          `json:"checksum"` // CRC-32 (IEEE) of the bytes of the value
	Value    json.RawMessage `json:"value"`
}

// Store keeps a value in the run folder. It writes in a goroutine of its own, always the newest one: no
// answer waits for it.
type Store[T any] struct {
	dir  string
	root *os.Root // the same folder, also if it was replaced: what is then at the path is another server's
	boot string
	log  *slog.Logger

	changed chan struct{} // holds a token when there is something to write
	failing bool          // the last write failed, which has been logged
}

// Open opens the run folder. Run closes it.
func Open[T any](runDir string, log *slog.Logger) (*Store[T], error) {
	root, err := os.OpenRoot(runDir)
	if err != nil {
		return nil, fmt.Errorf("open run folder: %w", err)
	}
	if err := root.Remove(ledgerName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("leave the ledger of an earlier version", "error", err)
	}
	return &Store[T]{dir: runDir, root: root, boot: bootID(), log: log, changed: make(chan struct{}, 1)}, nil
}

// bootID identifies the running kernel's boot; "" where it cannot be read, which is then the same after every
// boot.
func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

// Touch says that there is something to write. It never blocks.
func (s *Store[T]) Touch() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// retryPause is the time after which a write that failed is tried again, though nothing has changed since.
const retryPause = 10 * time.Second

// Run writes whenever something has changed, again after a write that failed, and once more when ctx is done.
// It closes the store.
func (s *Store[T]) Run(ctx context.Context, value func() T) error {
	defer s.root.Close()
	for {
		var retry <-chan time.Time
		if s.failing {
			retry = time.After(retryPause)
		}
		select {
		case <-s.changed:
			s.write(value())
		case <-retry:
			s.write(value())
		case <-ctx.Done():
			s.write(value())
			return nil
		}
	}
}

// write replaces the file. A failure costs nothing but what a crash would then lose; it is logged when it
// begins and when it ends.
func (s *Store[T]) write(value T) {
	err := s.replace(value)
	switch {
	case err != nil && !s.failing:
		s.log.Error("go on without a checkpoint; free space or repair the run folder",
			"run_dir", s.dir, "error", err)
	case err == nil && s.failing:
		s.log.Info("there is a checkpoint again", "run_dir", s.dir)
	}
	s.failing = err != nil
}

// replace writes the file so that at any time, whichever process dies, it is the old one or the new one as a
// whole. It does not wait for the disk: what a crash of the node could lose is of a boot that is over.
func (s *Store[T]) replace(value T) error {
	content, err := encode(s.boot, value)
	if err != nil {
		return err
	}
	if len(content) > MaxSize {
		err := fmt.Errorf("the checkpoint takes %d bytes, more than %d", len(content), MaxSize)
		return errors.Join(err, s.root.Remove(FileName)) // an old one would tell what is no longer so
	}
	if err := s.root.Remove(tempName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := s.root.OpenFile(tempName, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err := errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, s.root.Remove(tempName))
	}
	return s.root.Rename(tempName, FileName)
}

// Load reads what an earlier server has written since the boot; false where there is nothing. What cannot be
// trusted is set aside.
func (s *Store[T]) Load() (value T, ok bool) {
	value, boot, err := read[T](s.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return value, false
	case err != nil:
		s.SetAside(err)
		return value, false
	case boot != s.boot:
		s.log.Info("leave the checkpoint of another boot", "run_dir", s.dir)
		return value, false
	}
	return value, true
}

// SetAside renames the file so that people can look at it and nobody reads it again.
func (s *Store[T]) SetAside(reason error) {
	bad := filepath.Join(s.dir, BadName)
	err := os.Rename(filepath.Join(s.dir, FileName), bad)
	s.log.Warn("set the checkpoint aside; who holds what is read from the kubelet",
		"file", bad, "reason", reason, "error", err)
}

// Read reads what was written into a run folder since the boot, without touching it.
func Read[T any](runDir string) (T, error) {
	value, boot, err := read[T](runDir)
	if err == nil && boot != bootID() {
		err = fmt.Errorf("read %s: it is of another boot", filepath.Join(runDir, FileName))
	}
	return value, err
}

// read reads a run folder's file, if it is a plain one of ours that nobody else can write.
func read[T any](dir string) (value T, boot string, err error) {
	name := filepath.Join(dir, FileName)
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return value, "", fmt.Errorf("open checkpoint: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return value, "", fmt.Errorf("look at checkpoint: %w", err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || !info.Mode().IsRegular() ||
		int(stat.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return value, "", fmt.Errorf("trust %s: it has to be a file of user %d that nobody else can write",
			name, os.Geteuid())
	}
	if info.Size() > MaxSize {
		return value, "", fmt.Errorf("trust %s: it has %d bytes, more than %d", name, info.Size(), MaxSize)
	}
	content, err := io.ReadAll(io.LimitReader(file, MaxSize))
	if err != nil {
		return value, "", fmt.Errorf("read checkpoint: %w", err)
	}
	return decode[T](content)
}

func encode[T any](boot string, value T) ([]byte, error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint: %w", err)
	}
	content, err := json.Marshal(envelope{Version, boot, crc32.ChecksumIEEE(encoded), encoded})
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint: %w", err)
	}
	return append(content, '\n'), nil
}

func decode[T any](content []byte) (value T, boot string, err error) {
	var e envelope
	if err := json.Unmarshal(content, &e); err != nil {
		return value, "", fmt.Errorf("parse checkpoint: %w", err)
	}
	if e.Version != Version {
		return value, "", fmt.Errorf("parse checkpoint: it has version %d, this is %d", e.Version, Version)
	}
	if sum := crc32.ChecksumIEEE(e.Value); sum != e.Checksum {
		return value, "", fmt.Errorf("parse checkpoint: checksum is %d, should be %d", sum, e.Checksum)
	}
	decoder := json.NewDecoder(bytes.NewReader(e.Value))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&value); err != nil {
		return value, "", fmt.Errorf("parse checkpoint: %w", err)
	}
	return value, e.Boot, nil
}
