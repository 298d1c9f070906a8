// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package settings

import (
	"io/fs"
	"time"
)

// changeTime returns the time of the last change of a file's content: a kubelet's files are on Linux.
func changeTime(info fs.FileInfo) time.Time { return info.ModTime() }
