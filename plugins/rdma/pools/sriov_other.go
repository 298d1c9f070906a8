// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package pools

import "io/fs"

// newLive returns the reader of files: sriovnet is for Linux, and no other system has the files in /sys.
func newLive(sys fs.FS) SRIOVFiles { return SRIOVFiles{sys} }
