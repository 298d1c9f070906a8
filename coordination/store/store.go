// SPDX-License-Identifier: Apache-2.0

// Package store keeps the state of a server for the next server, in one file of the run folder.
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
	"slices"
	"syscall"
	"time"

	"github.com/tandem-k8s/tandem/coordination/system"
)

// FileName is the file in the run folder; BadName is the name of the last untrustworthy file.
const (
	FileName = "coordinator.json"
	BadName  = FileName + ".bad"
)

// ledgerName is the file of earlier versions with the holders of devices. The file is removed: an earlier
// version that serves again must not continue from an outdated state.
const ledgerName = "ledger.json"

// Version is the version of the format. A file of an earlier version is set aside, without consequences; a
// file of a newer version stays.
const Version = 1

// layout is that of the envelope.
var layout = system.Layout{Version: Version, Keys: []string{"boot", "checksum", "value"}}

// MaxSize is the maximum size of the file, in bytes. A thousand devices take about 100 KiB, so that several
// resources of resources.MaxDevices fit.
const MaxSize = 16 << 20

// header precedes the value in the file.
type header struct {
	Version  int    `json:"version"`
	Boot     string `json:"boot"`     // /proc/sys/kernel/random/boot_id: devices can change with a reboot
	Checksum uint32 `json:"checksum"` // CRC-32 (IEEE) of the bytes of the value
}

// envelope is the file.
type envelope struct {
	header
	Value json.RawMessage `json:"value"`
}

// Store keeps a value in the run folder. A goroutine writes the latest value, so that no answer waits for a
// write.
type Store[T any] struct {
	boot   string // identifies the boot
	dir    string
	folder system.Folder // the same folder, even after another server has replaced the folder at the path
	log    *slog.Logger

	changed chan struct{} // holds a token after a change
	failing bool          // the last write failed, and the error was logged
	idle    bool          // the file stays as it is: it is of a newer version, or nobody knows the boot
}

// Open opens the run folder. Run closes the folder.
func Open[T any](disk system.Disk, runDir string, log *slog.Logger) (*Store[T], error) {
	folder, err := disk.Folder(runDir)
	if err != nil {
		return nil, fmt.Errorf("open run folder: %w", err)
	}
	ledger := filepath.Join(runDir, ledgerName)
	if err := errors.Join(disk.Remove(ledger), disk.RemoveTemporaries(runDir, system.Abandoned)); err != nil {
		log.Warn("files of earlier servers not removed", "error", err)
	}
	boot, err := disk.BootID()
	if err != nil {
		log.Warn("a restart will lose the decisions: a file in the run folder is valid for one boot", "error", err)
	}
	return &Store[T]{
		boot: boot, idle: err != nil, dir: runDir, folder: folder, log: log, changed: make(chan struct{}, 1),
	}, nil
}

// Touch requests a write after a change. Touch never blocks.
func (s *Store[T]) Touch() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// retryPause is the time from a failed write to the next attempt without a further change.
const retryPause = 10 * time.Second

// Run writes after each change, again after a failed write, and a last time when ctx is done. Run closes the
// store.
func (s *Store[T]) Run(ctx context.Context, value func() T) error {
	defer s.folder.Close()
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

// write replaces the file. After a failure a crash loses the changes since; the first failure and the
// recovery are logged.
func (s *Store[T]) write(value T) {
	if s.idle {
		return
	}
	err := s.replace(value)
	switch {
	case err != nil && !s.failing:
		s.log.Error("checkpoint not written; free space or repair the run folder",
			"run_dir", s.dir, "error", err)
	case err == nil && s.failing:
		s.log.Info("checkpoint written again", "run_dir", s.dir)
	}
	s.failing = err != nil
}

// replace replaces the file as a whole: at any time, whichever process dies, the file is the old or the new
// version. No sync is necessary, since the file is only valid until the node reboots.
func (s *Store[T]) replace(value T) error {
	content, err := encode(s.boot, value)
	if err != nil {
		return err
	}
	if len(content) > MaxSize {
		err := fmt.Errorf("the checkpoint takes %d bytes, more than %d", len(content), MaxSize)
		return errors.Join(err, s.folder.Remove(FileName)) // an old file would be outdated
	}
	return system.ReplaceIn(s.folder, FileName, content, 0o600)
}

// Load returns the value of an earlier server since the boot; false for none. An untrustworthy file is set
// aside. The file of a newer version stays, for that version: then the store writes nothing.
func (s *Store[T]) Load() (value T, ok bool) {
	value, boot, err := read[T](s.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return value, false
	case errors.Is(err, system.ErrNewer):
		s.idle = true
		s.log.Warn("a restart will lose the decisions: the file in the run folder is of a newer version; install "+
			"that version again, or remove the file and restart",
			"file", filepath.Join(s.dir, FileName), "error", err)
		return value, false
	case err != nil:
		s.SetAside(err)
		return value, false
	case s.idle:
		return value, false
	case boot != s.boot:
		s.log.Info("ignored the checkpoint of another boot", "run_dir", s.dir)
		return value, false
	}
	return value, true
}

// SetAside renames the file, for inspection by people; no server reads the file again.
func (s *Store[T]) SetAside(reason error) {
	err := s.folder.Rename(FileName, BadName)
	s.log.Warn("renamed an unusable checkpoint; reading the holders of devices from the kubelet",
		"file", filepath.Join(s.dir, BadName), "reason", reason, "error", err)
}

// Read returns the value in a run folder since a boot, "" for the running kernel's, and changes nothing.
func Read[T any](runDir, since string) (T, error) {
	value, boot, err := read[T](runDir)
	if err != nil {
		return value, err
	}
	now, err := system.Disk{Boot: since}.BootID()
	if err == nil && boot != now {
		err = fmt.Errorf("read %s: it is of another boot", filepath.Join(runDir, FileName))
	}
	return value, err
}

// read reads a run folder's file if the file is regular, of this user, and not writable for others.
func read[T any](dir string) (value T, boot string, err error) {
	name := filepath.Join(dir, FileName)
	opened, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return value, "", fmt.Errorf("open checkpoint: %w", err)
	}
	defer opened.Close()
	info, err := opened.Stat()
	if err != nil {
		return value, "", fmt.Errorf("look at checkpoint: %w", err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || !info.Mode().IsRegular() ||
		int(stat.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return value, "", fmt.Errorf("trust %s: the path has to be a regular file of user %d, "+
			"without write permission for other users",
			name, os.Geteuid())
	}
	if info.Size() > MaxSize {
		return value, "", fmt.Errorf("trust %s: it has %d bytes, more than %d", name, info.Size(), MaxSize)
	}
	content, err := io.ReadAll(io.LimitReader(opened, MaxSize))
	if err != nil {
		return value, "", fmt.Errorf("read checkpoint: %w", err)
	}
	return decode[T](content)
}

// encode returns the envelope of a value, without a second pass of the encoder over the encoded value.
func encode[T any](boot string, value T) ([]byte, error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint: %w", err)
	}
	head, err := json.Marshal(header{Version, boot, crc32.ChecksumIEEE(encoded)})
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint: %w", err)
	}
	head, _ = bytes.CutSuffix(head, []byte("}"))
	return slices.Concat(head, []byte(`,"value":`), encoded, []byte("}\n")), nil
}

func decode[T any](content []byte) (value T, boot string, err error) {
	e, err := system.Decode[envelope](content, layout)
	if err != nil {
		return value, "", fmt.Errorf("parse checkpoint: %w", err)
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
