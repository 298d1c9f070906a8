// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package coordination

import "errors"

// socketPeer returns an error: the plugins, and with them the socket, are on Linux.
func socketPeer(int) (pid int32, uid int, err error) { return 0, 0, errors.ErrUnsupported }
