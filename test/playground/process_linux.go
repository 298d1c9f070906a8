// SPDX-License-Identifier: Apache-2.0

package playground

import "syscall"

// processAttributes returns the attributes of a daemon's process: a process group of its own, and its end
// with tandem.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
