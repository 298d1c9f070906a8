// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"fmt"
	"net"
	"os"
	"syscall"

	"google.golang.org/grpc/credentials"
)

// peerCredentials admits only root and the process's own user on both sides of the socket. The permissions of
// the directory and the socket have the same effect; this check holds even if a user relaxes them.
type peerCredentials struct{}

var _ credentials.TransportCredentials = peerCredentials{}

// ServerHandshake checks the client.
func (p peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return p.check(conn)
}

// ClientHandshake checks the server.
func (p peerCredentials) ClientHandshake(
	_ context.Context, _ string, conn net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	return p.check(conn)
}

// Info returns the name of the protocol.
func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix-peer-credentials"}
}

// Clone returns an identical copy: the value has no state.
func (p peerCredentials) Clone() credentials.TransportCredentials { return p }

// OverrideServerName does nothing: the protocol has no server names.
func (peerCredentials) OverrideServerName(string) error { return nil }

// peer identifies the other side: its process ID, or 0 in a PID namespace that is not visible here.
type peer struct {
	credentials.CommonAuthInfo
	pid int32
}

func (peer) AuthType() string { return "unix-peer-credentials" }

func (peerCredentials) check(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	unixConn, ok := conn.(syscall.Conn)
	if !ok || conn.RemoteAddr().Network() != "unix" {
		return nil, nil, fmt.Errorf("check peer: %s is no unix socket", conn.RemoteAddr().Network())
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return nil, nil, fmt.Errorf("check peer: %w", err)
	}
	var pid int32
	var uid int
	var getErr error
	if err := raw.Control(func(fd uintptr) { pid, uid, getErr = socketPeer(int(fd)) }); err != nil {
		return nil, nil, fmt.Errorf("check peer: %w", err)
	}
	if getErr != nil {
		return nil, nil, fmt.Errorf("check peer: %w", getErr)
	}
	if uid != 0 && uid != os.Geteuid() {
		return nil, nil, fmt.Errorf("refuse peer: process %d is of user %d", pid, uid)
	}
	return conn, peer{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, pid}, nil
}
