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
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/system"
	program "github.com/tandem-k8s/tandem/coordination/version"
)

// Socket connects the plugins of a node.
type Socket interface {
	// Dial returns a client with the options of the protocol. The client connects on the first call.
	Dial(options ...grpc.DialOption) (*grpc.ClientConn, error)
	// Listen binds the socket. Must be called with the lock.
	Listen() (Listener, error)
	// Credentials returns the server's check of clients.
	Credentials() credentials.TransportCredentials
	// Remove removes the socket.
	Remove() error
}

// Listener is a bound socket.
type Listener interface {
	net.Listener
	// AwaitReplaced returns an error if the socket has been replaced since it was bound, nil after ctx is done.
	// Each check calls looked.
	AwaitReplaced(ctx context.Context, looked func()) error
}

// unixSocket is the unix socket in a run directory.
type unixSocket struct{ runDir string }

// Dial returns a client that checks the server.
func (s unixSocket) Dial(options ...grpc.DialOption) (*grpc.ClientConn, error) {
	options = append(options, grpc.WithTransportCredentials(peerCredentials{}))
	return grpc.NewClient("unix:"+SocketPath(s.runDir), options...)
}

// Listen binds the socket, for a limited number of connections.
func (s unixSocket) Listen() (Listener, error) {
	listener, err := s.bind()
	if err != nil {
		return nil, err
	}
	path := SocketPath(s.runDir)
	bound, _ := system.Identify(path) // zero if it is gone already, which is no later socket's
	return limitedListener{listener, path, bound, make(chan struct{}, maxConnections)}, nil
}

// bind binds the socket. An existing socket belongs to an ended process. The caller removes the socket,
// unless another process has replaced the socket.
func (s unixSocket) bind() (*net.UnixListener, error) {
	name := SocketPath(s.runDir)
	if err := CheckSocketPlace(name); err != nil {
		return nil, err
	}
	if err := s.Remove(); err != nil {
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

// Credentials returns the check of a peer's user.
func (unixSocket) Credentials() credentials.TransportCredentials { return peerCredentials{} }

// Remove removes the file.
func (s unixSocket) Remove() error {
	if err := os.Remove(SocketPath(s.runDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove coordination socket: %w", err)
	}
	return nil
}

// errReplaced means that the socket in the run directory is gone or belongs to another process.
var errReplaced = errors.New("the coordination socket was removed or replaced")

// AwaitReplaced checks the file after each change, such as removal or replacement. Further checks every
// electionPause detect changes of parent directories, also on file systems without notification.
func (l limitedListener) AwaitReplaced(ctx context.Context, looked func()) error {
	watch := system.Watch{Paths: []string{l.path}, Interval: electionPause}
	return watch.Run(ctx, func() error {
		if now, found := system.Identify(l.path); !found || now != l.bound {
			return errReplaced
		}
		looked()
		return nil
	})
}

// limitedListener rejects connections beyond its slots.
type limitedListener struct {
	*net.UnixListener
	path  string          // not that of the directory, with its many writes
	bound system.Identity // of the socket when it was bound
	slots chan struct{}   // with room for maxConnections
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

// version is a version of coordination.proto. The minor number grows with every addition, the major number
// with every change that an older plugin would misinterpret.
type version struct{ major, minor uint32 }

// protocol is the version of this program.
var protocol = version{2, 9}

func (v version) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

// admits returns an error if a server of this version cannot serve a client of another version. Both sides
// check: during a rolling update either side can be newer.
func (v version) admits(client version) error {
	if v.major == client.major {
		return nil
	}
	return fmt.Errorf("the server has protocol version %s and the client %s; the plugins place devices "+
		"independently until both have the same version of Tandem", v, client)
}

// build returns the version of this program, for people.
var build = program.Text

// ownVersion returns the version of this program.
func ownVersion() *api.Version {
	return &api.Version{Major: protocol.major, Minor: protocol.minor, Build: build()}
}

// Limits of a client's messages, besides device.MaxDevices for each resource. The kubelet accepts about
// 40,000 devices in one message, resource names of up to 317 bytes and device IDs of up to 63 bytes.
const (
	maxMessage = 4 << 20 // bytes
	maxLinks   = 1 << 14
	maxName    = 512 // bytes of a name or an ID
)

// maxAnswer is the maximum size of an answer in bytes: Status contains all devices of all resources, with the
// holders.
const maxAnswer = 64 << 20

// Limits for clients: two plugins, with one connection each, and people.
const (
	maxConnections   = 32
	maxCalls         = 32 // simultaneous, of one connection
	handshakeTimeout = time.Second
	idleTimeout      = 30 * time.Second // of a connection without a call, such as a plugin's Join
)

// checkIDs returns an error for a resource name or device IDs beyond the limits.
func checkIDs(resource string, lists ...[]string) error {
	if resource == "" || len(resource) > maxName {
		return status.Errorf(codes.InvalidArgument, "resource name of %d bytes", len(resource))
	}
	for _, ids := range lists {
		if len(ids) > device.MaxDevices {
			return status.Errorf(codes.InvalidArgument, "%d devices of %s, more than %d", len(ids), resource,
				device.MaxDevices)
		}
		for _, id := range ids {
			if id == "" || len(id) > maxName {
				return status.Errorf(codes.InvalidArgument, "device ID of %d bytes of %s", len(id), resource)
			}
		}
	}
	return nil
}

// checkAnnouncement returns an error for an announcement beyond the limits. Clients and servers check.
func checkAnnouncement(m *api.Announcement) error {
	ids := make([]string, 0, min(len(m.GetDevices()), device.MaxDevices+1))
	for _, d := range m.GetDevices() {
		ids = append(ids, d.GetId())
	}
	if err := checkIDs(m.GetResource(), ids); err != nil {
		return err
	}
	if len(m.GetLinks()) > maxLinks {
		return status.Errorf(codes.InvalidArgument, "%d links, more than %d", len(m.GetLinks()), maxLinks)
	}
	if size := proto.Size(m); size > maxMessage {
		return status.Errorf(codes.InvalidArgument, "%d devices of %s in %d bytes, more than %d", len(ids),
			m.GetResource(), size, maxMessage)
	}
	return nil
}

// isRejection reports whether a server rejected an announcement and would reject a repetition.
func isRejection(err error) bool {
	code := status.Code(err)
	return code == codes.InvalidArgument || code == codes.ResourceExhausted
}
