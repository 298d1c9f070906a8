// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
	list, err := json.Marshal(sorted(claims))
	if err != nil {
		return nil, fmt.Errorf("encode prepared claims: %w", err)
	}
	content, err := json.Marshal(checkpoint{checkpointVersion, crc32.ChecksumIEEE(list), list})
	if err != nil {
		return nil, fmt.Errorf("encode prepared claims: %w", err)
	}
	return append(content, '\n'), nil
}

func sorted(claims []Claim) []Claim {
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
