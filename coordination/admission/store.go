// SPDX-License-Identifier: Apache-2.0

package admission

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

// StateFile is the file in the run folder; badStateFile is the name of the last untrustworthy file.
const (
	StateFile    = "coordinator.json"
	badStateFile = StateFile + ".bad"
)

// stateVersion is the version of the format. A file of an earlier version is set aside, without consequences;
// a file of a newer version stays.
const stateVersion = 1

// stateLayout is that of the envelope.
var stateLayout = system.Layout{Version: stateVersion, Keys: []string{"boot", "checksum", "value"}}

// maxState is the maximum size of the file, in bytes. A thousand devices take about 100 KiB, so that several
// resources of device.MaxDevices fit.
const maxState = 16 << 20

// stateHeader precedes the value in the file.
type stateHeader struct {
	Version  int    `json:"version"`
	Boot     string `json:"boot"`     // /proc/sys/kernel/random/boot_id: devices can change with a reboot
	Checksum uint32 `json:"checksum"` // CRC-32 (IEEE) of the bytes of the value
}

// stateEnvelope is the file.
type stateEnvelope struct {
	stateHeader
	Value json.RawMessage `json:"value"`
}

// store keeps a value in the run folder. A goroutine writes the latest value, so that no answer waits for a
// write.
type store[T any] struct {
	boot   string // identifies the boot
	dir    string
	folder system.Folder // the same folder, even after another server has replaced the folder at the path
	log    *slog.Logger

	changed system.Trigger // asks for a write
	failing bool           // the last write failed, and the error was logged
	idle    bool           // the file stays as it is: it is of a newer version, or nobody knows the boot
}

// openStore opens the run folder. run closes the folder.
func openStore[T any](disk system.Disk, runDir string, log *slog.Logger) (*store[T], error) {
	folder, err := disk.Folder(runDir)
	if err != nil {
		return nil, fmt.Errorf("open run folder: %w", err)
	}
	if err := disk.RemoveAbandoned(runDir); err != nil {
		log.Warn("files of earlier servers not removed", "error", err)
	}
	boot, err := disk.BootID()
	if err != nil {
		log.Warn("a restart will lose the decisions: a file in the run folder is valid for one boot", "error", err)
	}
	return &store[T]{
		boot: boot, idle: err != nil, dir: runDir, folder: folder, log: log, changed: system.NewTrigger(),
	}, nil
}

// retryWrite is the time from a failed write to the next attempt without a further change.
const retryWrite = 10 * time.Second

// run writes after each change, again after a failed write, and a last time when ctx is done. run closes the
// store.
func (s *store[T]) run(ctx context.Context, value func() T) error {
	defer s.folder.Close()
	for {
		var retry <-chan time.Time
		if s.failing {
			retry = time.After(retryWrite)
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
func (s *store[T]) write(value T) {
	if s.idle {
		return
	}
	err := s.replace(value)
	switch {
	case err != nil && !s.failing:
		s.log.Error("saved state not written; free space or repair the run folder",
			"run_dir", s.dir, "error", err)
	case err == nil && s.failing:
		s.log.Info("saved state written again", "run_dir", s.dir)
	}
	s.failing = err != nil
}

// replace replaces the file as a whole: at any time, whichever process dies, the file is the old or the new
// version. No sync is necessary, since the file is only valid until the node reboots.
func (s *store[T]) replace(value T) error {
	content, err := encodeState(s.boot, value)
	if err != nil {
		return err
	}
	if len(content) > maxState {
		err := fmt.Errorf("the saved state takes %d bytes, more than %d", len(content), maxState)
		return errors.Join(err, s.folder.Remove(StateFile)) // an old file would be outdated
	}
	return system.ReplaceIn(s.folder, StateFile, content, 0o600)
}

// load returns the value of an earlier server since the boot; false for none. An untrustworthy file is set
// aside. The file of a newer version stays, for that version: then the store writes nothing.
func (s *store[T]) load() (value T, ok bool) {
	value, boot, err := readState[T](s.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return value, false
	case errors.Is(err, system.ErrNewer):
		s.idle = true
		s.log.Warn("a restart will lose the decisions: the file in the run folder is of a newer version; install "+
			"that version again, or remove the file and restart",
			"file", filepath.Join(s.dir, StateFile), "error", err)
		return value, false
	case err != nil:
		s.setAside(err)
		return value, false
	case s.idle:
		return value, false
	case boot != s.boot:
		s.log.Info("ignored the saved state of another boot", "run_dir", s.dir)
		return value, false
	}
	return value, true
}

// setAside renames the file, for inspection by people; no server reads the file again.
func (s *store[T]) setAside(reason error) {
	err := s.folder.Rename(StateFile, badStateFile)
	s.log.Warn("renamed an unusable saved state; reading the holders of devices from the kubelet",
		"file", filepath.Join(s.dir, badStateFile), "reason", reason, "error", err)
}

// readStore returns the value in a run folder since a boot, "" for the running kernel's, and changes nothing.
func readStore[T any](runDir, since string) (T, error) {
	value, boot, err := readState[T](runDir)
	if err != nil {
		return value, err
	}
	now, err := system.Disk{Boot: since}.BootID()
	if err == nil && boot != now {
		err = fmt.Errorf("read %s: it is of another boot", filepath.Join(runDir, StateFile))
	}
	return value, err
}

// readState reads a run folder's file if the file is regular, of this user, and not writable for others.
func readState[T any](dir string) (value T, boot string, err error) {
	name := filepath.Join(dir, StateFile)
	opened, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return value, "", fmt.Errorf("open saved state: %w", err)
	}
	defer opened.Close()
	info, err := opened.Stat()
	if err != nil {
		return value, "", fmt.Errorf("look at saved state: %w", err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || !info.Mode().IsRegular() ||
		int(stat.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return value, "", fmt.Errorf("trust %s: the path has to be a regular file of user %d, "+
			"without write permission for other users",
			name, os.Geteuid())
	}
	if info.Size() > maxState {
		return value, "", fmt.Errorf("trust %s: it has %d bytes, more than %d", name, info.Size(), maxState)
	}
	content, err := io.ReadAll(io.LimitReader(opened, maxState))
	if err != nil {
		return value, "", fmt.Errorf("read saved state: %w", err)
	}
	return decodeState[T](content)
}

// encodeState returns the envelope of a value, without a second pass of the encoder over the encoded value.
func encodeState[T any](boot string, value T) ([]byte, error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode saved state: %w", err)
	}
	head, err := json.Marshal(stateHeader{stateVersion, boot, crc32.ChecksumIEEE(encoded)})
	if err != nil {
		return nil, fmt.Errorf("encode saved state: %w", err)
	}
	head, _ = bytes.CutSuffix(head, []byte("}"))
	return slices.Concat(head, []byte(`,"value":`), encoded, []byte("}\n")), nil
}

func decodeState[T any](content []byte) (value T, boot string, err error) {
	e, err := system.Decode[stateEnvelope](content, stateLayout)
	if err != nil {
		return value, "", fmt.Errorf("parse saved state: %w", err)
	}
	if sum := crc32.ChecksumIEEE(e.Value); sum != e.Checksum {
		return value, "", fmt.Errorf("parse saved state: checksum is %d, should be %d", sum, e.Checksum)
	}
	if err := json.Unmarshal(e.Value, &value); err != nil {
		return value, "", fmt.Errorf("parse saved state: %w", err)
	}
	return value, e.Boot, nil
}
