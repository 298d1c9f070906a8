// SPDX-License-Identifier: Apache-2.0

package coordination

import "syscall"

// socketPeer returns the process and the user on the other side of a unix socket.
func socketPeer(fd int) (pid int32, uid int, err error) {
	ucred, err := syscall.GetsockoptUcred(fd, syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	if err != nil {
		return 0, 0, err
	}
	return ucred.Pid, int(ucred.Uid), nil
}
