// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"io/fs"
	"syscall"
	"time"
)

// changeTime returns the time of the last change of a file, its name or its permissions.
func changeTime(info fs.FileInfo) time.Time {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return info.ModTime()
	}
	return time.Unix(stat.Ctim.Unix())
}
