// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/tandem-k8s/tandem/coordination/system"
)

// Socket connects the plugins of a node.
type Socket interface {
	// Dial returns a client with the options of the protocol. The client connects on the first call.
	Dial(options ...grpc.DialOption) (*grpc.ClientConn, error)
	// Listen binds the socket. Must be called with the lock.
	Listen() (net.Listener, error)
	// Credentials returns the server's check of clients.
	Credentials() credentials.TransportCredentials
	// AwaitReplaced returns an error after a replacement of the socket, nil after ctx is done. Each check calls
	// looked.
	AwaitReplaced(ctx context.Context, looked func()) error
	// Remove removes the socket.
	Remove() error
}

// unixSocket is the unix socket in a run directory.
type unixSocket struct{ runDir string }

// Dial returns a client that checks the server.
func (s unixSocket) Dial(options ...grpc.DialOption) (*grpc.ClientConn, error) {
	options = append(options, grpc.WithTransportCredentials(peerCredentials{}))
	return grpc.NewClient("unix:"+SocketPath(s.runDir), options...)
}

// Listen binds the socket, for a limited number of connections.
func (s unixSocket) Listen() (net.Listener, error) {
	listener, err := listen(s.runDir)
	if err != nil {
		return nil, err
	}
	return newLimitedListener(listener), nil
}

// Credentials returns the check of a peer's user.
func (unixSocket) Credentials() credentials.TransportCredentials { return peerCredentials{} }

// AwaitReplaced watches the file.
func (s unixSocket) AwaitReplaced(ctx context.Context, looked func()) error {
	return awaitReplaced(ctx, s.runDir, looked)
}

// Remove removes the file.
func (s unixSocket) Remove() error { return removeSocket(s.runDir) }

// listen binds the coordination socket. Must be called with the lock: an existing socket then belongs to an
// ended process. The caller removes the socket, unless another process has replaced the socket.
func listen(runDir string) (*net.UnixListener, error) {
	name := SocketPath(runDir)
	if err := CheckSocketPlace(name); err != nil {
		return nil, err
	}
	if err := removeSocket(runDir); err != nil {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("bind coordination socket: %w", err)
	}
	listener.SetUnlinkOnClose(false)
	if err := os.Chmod(name, 0o600); err != nil {
		listener.Close()
		return nil, fmt.Errorf("close socket to others: %w", err)
	}
	return listener, nil
}

func removeSocket(runDir string) error {
	if err := os.Remove(SocketPath(runDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove coordination socket: %w", err)
	}
	return nil
}

// errReplaced means that the socket in the run directory is gone or belongs to another process.
var errReplaced = errors.New("the coordination socket was removed or replaced")

// awaitReplaced checks the socket until ctx is done, and returns an error after a replacement of the socket.
// Each change of the file, such as removal or replacement, causes a check. Further checks every electionPause
// detect changes of parent directories, also on file systems without notification. Each check calls looked.
func awaitReplaced(ctx context.Context, runDir string, looked func()) error {
	path := SocketPath(runDir) // not the directory, with its many writes
	ours, ok := system.Identify(path)
	if !ok {
		return errReplaced
	}
	watch := system.Watch{Paths: []string{path}, Interval: electionPause}
	return watch.Run(ctx, func() error {
		if now, _ := system.Identify(path); now != ours {
			return errReplaced
		}
		looked()
		return nil
	})
}

// limitedListener rejects connections beyond maxConnections.
type limitedListener struct {
	*net.UnixListener
	slots chan struct{}
}

func newLimitedListener(l *net.UnixListener) limitedListener {
	return limitedListener{l, make(chan struct{}, maxConnections)}
}

// Accept returns the next connection within the limit, and closes other connections.
func (l limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		select {
		case l.slots <- struct{}{}:
			return &countedConn{conn, sync.OnceFunc(func() { <-l.slots })}, nil
		default:
			conn.Close()
		}
	}
}

// countedConn returns the slot when closed.
type countedConn struct {
	*net.UnixConn
	done func()
}

func (c *countedConn) Close() error {
	defer c.done()
	return c.UnixConn.Close()
}

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
