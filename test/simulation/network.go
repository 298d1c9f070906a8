// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// network connects the plugins of a node in memory. At most one plugin serves.
type network struct {
	mu      sync.Mutex
	server  *listener // nil if nobody serves
	conns   []*wire
	blocked bool // no new connections
	sockets int  // opened
}

// newSocket returns a plugin's end of the network. Each end has a latency of its own, so that no two plugins
// notice an event at the same time: their order would be random.
func (n *network) newSocket() *socket {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sockets++
	return &socket{network: n, latency: time.Duration(1+n.sockets%50) * 17 * time.Microsecond}
}

// wire is a connection between two plugins.
type wire struct {
	net.Conn
	client, server *socket
}

// Read reads from the server. A cut ends the connection within a message, once the server has sent its
// answer.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if err != nil {
		seeds.Sleep(w.client.latency)
	}
	if cut := w.client.takeCut(); n > 0 && cut != nil {
		<-cut
		_ = w.Close()
		return n / 2, nil
	}
	return n, err
}

// Write writes to the server. The bytes for a broken connection are lost, and only Read tells of the break:
// a gRPC client whose Write fails tries new streams again without a pause until its Read fails, and the
// virtual clock would stand still.
func (w *wire) Write(p []byte) (int, error) {
	_, _ = w.Conn.Write(p)
	return len(p), nil
}

// listener is the socket of the serving plugin.
type listener struct {
	*bufconn.Listener
	of *socket
}

// socket is a plugin's end of the network. It implements coordination.Socket.
type socket struct {
	network *network
	latency time.Duration

	mu    sync.Mutex
	dead  bool
	cut   chan struct{} // the next message is cut off when the channel is closed; nil for none
	fault *fault        // of the next call; nil for none

	recipient *kubelet.Container // that the latest answer to an Allocate names
}

// wireBuffer is the buffer of a connection in bytes, as of a unix socket.
const wireBuffer = 208 << 10

var errRefused = errors.New("connection refused")

// Dial returns a client.
func (s *socket) Dial(options ...grpc.DialOption) (*grpc.ClientConn, error) {
	return seeds.Dial(s.connect, append(options, grpc.WithChainUnaryInterceptor(s.call))...)
}

// connect connects to the serving plugin. A plugin that takes over after the loss of a connection is found.
func (s *socket) connect(ctx context.Context) (net.Conn, error) {
	seeds.Pause(ctx, time.Millisecond+s.latency)
	n := s.network
	n.mu.Lock()
	server, blocked := n.server, n.blocked
	n.mu.Unlock()
	if server == nil || blocked || s.isDead() || server.of.isDead() {
		return nil, errRefused
	}
	conn, err := server.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	w := &wire{Conn: conn, client: s, server: server.of}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns = append(n.conns, w)
	return w, nil
}

// Listen binds the socket, in place of any earlier server's.
func (s *socket) Listen() (coordination.Listener, error) {
	if s.isDead() {
		return nil, errRefused
	}
	l := &listener{bufconn.Listen(wireBuffer), s}
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	s.network.server = l
	return l, nil
}

// Credentials admits everyone: both plugins are one process.
func (*socket) Credentials() credentials.TransportCredentials { return insecure.NewCredentials() }

// lookPause is the interval of the checks of the socket.
const lookPause = 5 * time.Second

// AwaitReplaced checks the socket until ctx is done: nobody replaces it.
func (*listener) AwaitReplaced(ctx context.Context, looked func()) error {
	for {
		looked()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookPause):
		}
	}
}

// Remove unbinds the socket.
func (s *socket) Remove() error {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	if l := s.network.server; l != nil && l.of == s {
		s.network.server = nil
	}
	return nil
}

func (s *socket) isDead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead
}

// takeCut returns the cut for a message, once.
func (s *socket) takeCut() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	cut := s.cut
	s.cut = nil
	return cut
}

// kill ends all connections of a plugin, as the kernel does when a process dies.
func (s *socket) kill() {
	s.mu.Lock()
	s.dead = true
	s.mu.Unlock()
	_ = s.Remove()
	s.network.sever(func(w *wire) bool { return w.client == s || w.server == s })
}

// sever closes connections.
func (n *network) sever(chosen func(*wire) bool) {
	n.mu.Lock()
	var closing []*wire
	n.conns = slices.DeleteFunc(n.conns, func(w *wire) bool {
		if chosen(w) {
			closing = append(closing, w)
			return true
		}
		return false
	})
	n.mu.Unlock()
	for _, w := range closing {
		_ = w.Conn.Close()
	}
}

// block refuses new connections and closes all, or permits connections again.
func (n *network) block(blocked bool) {
	n.mu.Lock()
	n.blocked = blocked
	n.mu.Unlock()
	if blocked {
		n.sever(func(*wire) bool { return true })
	}
}

// isBlocked reports whether new connections are refused.
func (n *network) isBlocked() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.blocked
}
