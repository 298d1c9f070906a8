// SPDX-License-Identifier: Apache-2.0

package seeds

import (
	"os"
	"runtime"
	"syscall"
)

// memory is a folder in memory on Linux. On a disk a simulation waits for the disk most of its time.
const memory = "/dev/shm"

// seedFiles is more than the files of a seed take, in bytes.
const seedFiles = 16 << 20

// parent returns the folder for the directories of seeds: the user's TMPDIR if set, else a folder in memory
// with room for all seeds that run at the same time, else "", the system's.
func parent() string {
	var at syscall.Statfs_t
	if os.Getenv("TMPDIR") != "" || syscall.Statfs(memory, &at) != nil {
		return ""
	}
	if free := at.Bavail * uint64(at.Bsize); free < seedFiles*uint64(runtime.GOMAXPROCS(0)) {
		return ""
	}
	return memory
}
