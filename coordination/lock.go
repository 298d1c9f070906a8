package coordination

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// errLocked means that the other plugin serves.
var errLocked = errors.New("lock is held")

// tryLock takes <run-dir>/lock without waiting. The kernel gives it back when the process ends, however it
// ends. The file itself stays: removing it would let two processes lock two files of one name.
func tryLock(runDir string) (release func(), err error) {
	name := filepath.Join(runDir, "lock")
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return func() { file.Close() }, nil
	}
	file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errLocked
	}
	return nil, fmt.Errorf("lock %s: %w", name, err)
}
