// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package playground

import "syscall"

// processAttributes returns the attributes of a daemon's process: a process group of its own. The daemons are
// for Linux, and tandem starts none elsewhere.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
