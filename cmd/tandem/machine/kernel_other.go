// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package machine

import (
	"io/fs"
	"time"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// askKernel does nothing: a sysfs root on another system is a copy, whose kernel is elsewhere.
func askKernel(*pools.Finder, string) {}

// changeTime returns the time of the last change of a file's content: a kubelet's files are on Linux.
func changeTime(info fs.FileInfo) time.Time { return info.ModTime() }
