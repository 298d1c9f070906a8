// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
)

// Files in the driver's directory. BadName is a checkpoint that could not be read; only one is kept.
const (
	FileName = "claims.json"
	BadName  = "claims.json.bad"
	lockName = "claims.lock"
)

// checkpointVersion is the version of the format. Keys may be added: readers ignore unknown keys.
const checkpointVersion = 1

// checkpoint is the content of the file.
type checkpoint struct {
	Version  int             `json:"version"`
	Checksum uint32          `json:"checksum"` // CRC-32 (IEEE) of the encoded claims
	Claims   json.RawMessage `json:"claims"`
}

// errUnreadable means that the content of the checkpoint is not what was written.
var errUnreadable = errors.New("the checkpoint of claims is damaged, or of another version")

// readCheckpoint returns the prepared claims, by namespace and name; none if the file does not exist.
func readCheckpoint(dir string) ([]Claim, error) {
	name := filepath.Join(dir, FileName)
	content, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read prepared claims: %w", err)
	}
	return decodeCheckpoint(name, content)
}

// decodeCheckpoint is the inverse of encodeCheckpoint. It returns errUnreadable for damaged content.
func decodeCheckpoint(name string, content []byte) ([]Claim, error) {
	var file checkpoint
	var claims []Claim
	if err := json.Unmarshal(content, &file); err != nil {
		return nil, fmt.Errorf("read %s: %w: %w", name, errUnreadable, err)
	}
	if file.Version != checkpointVersion {
		return nil, fmt.Errorf("read %s: %w: it has version %d, this is %d", name, errUnreadable, file.Version,
			checkpointVersion)
	}
	if sum := crc32.ChecksumIEEE(file.Claims); sum != file.Checksum {
		return nil, fmt.Errorf("read %s: %w: its checksum is %d and should be %d", name, errUnreadable,
			file.Checksum, sum)
	}
	if err := json.Unmarshal(file.Claims, &claims); err != nil {
		return nil, fmt.Errorf("read %s: %w: %w", name, errUnreadable, err)
	}
	return claims, nil
}

// encodeCheckpoint returns the file content for claims.
func encodeCheckpoint(claims []Claim) ([]byte, error) {
	list, err := json.Marshal(sortedByName(claims))
	if err != nil {
		return nil, fmt.Errorf("encode prepared claims: %w", err)
	}
	content, err := json.Marshal(checkpoint{checkpointVersion, crc32.ChecksumIEEE(list), list})
	if err != nil {
		return nil, fmt.Errorf("encode prepared claims: %w", err)
	}
	return append(content, '\n'), nil
}

func sortedByName(claims []Claim) []Claim {
	return slices.SortedFunc(slices.Values(claims), func(a, b Claim) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
}

// ErrBusy means that another Preparer is using the directory.
var ErrBusy = errors.New("claims are being prepared or unprepared")

// lock waits until no other Preparer uses the directory. The kernel releases the lock when the process ends.
func lock(dir string) (release func(), err error) { return lockBy(dir, syscall.LOCK_EX) }

// tryLock is lock without waiting: it returns ErrBusy instead.
func tryLock(dir string) (release func(), err error) {
	return lockBy(dir, syscall.LOCK_EX|syscall.LOCK_NB)
}

func lockBy(dir string, how int) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make the driver's folder: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock of claims: %w", err)
	}
	for {
		if err = syscall.Flock(int(file.Fd()), how); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrBusy
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock claims: %w", err), file.Close())
	}
	return func() { file.Close() }, nil
}

// store keeps the prepared claims in the checkpoint. Its methods require the lock of the directory.
type store struct {
	dir     string
	files   *claimFiles
	log     *slog.Logger
	durable atomic.Pointer[[]byte] // the content that survives a power failure; nil if unknown
}

func (s *store) save(claims []Claim) error {
	content, err := encodeCheckpoint(claims)
	if err != nil {
		return err
	}
	s.durable.Store(nil)
	if err := s.files.disk.ReplaceDurably(filepath.Join(s.dir, FileName), content, 0o600); err != nil {
		return err
	}
	s.durable.Store(&content)
	return nil
}

// keep makes the content of the checkpoint durable, after a failed save and after a process that was killed:
// answers to the kubelet refer to the content, even if nothing is written.
func (s *store) keep(content []byte) error {
	if durable := s.durable.Load(); durable != nil && bytes.Equal(content, *durable) {
		return nil
	}
	if err := s.files.disk.Keep(filepath.Join(s.dir, FileName)); err != nil {
		return err
	}
	s.durable.Store(&content)
	return nil
}

// read returns the prepared claims. A checkpoint that cannot be read, or that is missing although CDI specs
// exist, is not an empty checkpoint: then every claim with a CDI spec counts as prepared, with unknown
// devices. This assigns no device twice, because the scheduler allocates a claim's devices to no other claim.
// Running pods keep their files, and the kubelet has the names of their CDI devices.
func (s *store) read() ([]Claim, error) {
	name := filepath.Join(s.dir, FileName)
	content, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s.adopt(nil, errors.New("there is none"))
	case err != nil:
		return nil, fmt.Errorf("read prepared claims: %w", err)
	}
	if err := s.keep(content); err != nil {
		return nil, err
	}
	known, err := decodeCheckpoint(name, content)
	if err != nil {
		return s.adopt(content, err)
	}
	return known, nil
}

// adopt writes a checkpoint of the claims with a CDI spec, in place of a damaged or missing one. It first
// copies the damaged checkpoint and does not move it: if the process dies or the disk is full, one of both
// files exists, and the next call starts again.
func (s *store) adopt(damaged []byte, cause error) ([]Claim, error) {
	with, err := s.files.specs()
	if err != nil || damaged == nil && len(with) == 0 {
		return nil, err
	}
	if damaged != nil {
		if err := s.files.disk.ReplaceDurably(filepath.Join(s.dir, BadName), damaged, 0o600); err != nil {
			return nil, fmt.Errorf("keep a copy of the damaged checkpoint: %w", err)
		}
	}
	known := make([]Claim, 0, len(with))
	for _, uid := range with {
		known = append(known, Claim{UID: uid})
	}
	if err := s.save(known); err != nil {
		return nil, err
	}
	s.log.Error("replaced the checkpoint of claims; claims with a CDI spec keep their files until they end",
		"claims", len(known), "copy", filepath.Join(s.dir, BadName), "error", cause)
	return known, nil
}

// dropEmpty removes adopted claims whose CDI spec is gone too, as after a boot: nothing is left of them.
func (s *store) dropEmpty(known []Claim) ([]Claim, error) {
	left := slices.DeleteFunc(slices.Clone(known), func(c Claim) bool {
		if len(c.Devices) > 0 {
			return false
		}
		_, err := os.Stat(s.files.specPath(c.UID))
		return errors.Is(err, fs.ErrNotExist)
	})
	if len(left) == len(known) {
		return known, nil
	}
	return left, s.save(left)
}
