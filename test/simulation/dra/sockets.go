// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// buffer is the buffer of a connection in bytes.
const buffer = 16 << 10

var errRefused = errors.New("connection refused")

// sockets are the sockets of a process for the kubelet, in memory.
type sockets struct {
	mu                  sync.Mutex
	registrar, plugin   *bufconn.Listener // nil before the process listens
	toRegistrar, toCall *grpc.ClientConn  // of the kubelet; nil before the first call
	conns               []net.Conn
	severed             bool
}

func newSockets() *sockets { return &sockets{} }

// listen binds a socket: of the registration, or of the calls.
func (s *sockets) listen(_ context.Context, path string) (net.Listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	listener := bufconn.Listen(buffer)
	if strings.HasSuffix(path, "-reg.sock") {
		s.registrar = listener
	} else {
		s.plugin = listener
	}
	return listener, nil
}

// listens reports whether the kubelet can find the process.
func (s *sockets) listens() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.registrar != nil && s.plugin != nil
}

// dial returns the kubelet's connections for the registration and for calls.
func (s *sockets) dial() (registrar, plugin *grpc.ClientConn, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.toCall == nil {
		if s.toRegistrar, err = s.client(s.registrar); err == nil {
			s.toCall, err = s.client(s.plugin)
		}
	}
	return s.toRegistrar, s.toCall, err
}

// client returns a client of a listener.
func (s *sockets) client(listener *bufconn.Listener) (*grpc.ClientConn, error) {
	return seeds.Dial(func(ctx context.Context) (net.Conn, error) {
		conn, err := listener.DialContext(ctx)
		if err != nil {
			return nil, err
		}
		return conn, s.keep(conn)
	})
}

// keep remembers a connection, to end it with the process.
func (s *sockets) keep(conn net.Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.severed {
		_ = conn.Close()
		return errRefused
	}
	s.conns = append(s.conns, conn)
	return nil
}

// sever ends all connections, as the kernel does when a process dies.
func (s *sockets) sever() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.severed = true
	for _, conn := range s.conns {
		_ = conn.Close()
	}
}

// hangUp ends the kubelet's side.
func (s *sockets) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range []*grpc.ClientConn{s.toRegistrar, s.toCall} {
		if conn != nil {
			_ = conn.Close()
		}
	}
}

// statusSocket is the status socket of a driver that nobody asks.
type statusSocket struct{}

// Dial fails.
func (statusSocket) Dial(...grpc.DialOption) (*grpc.ClientConn, error) { return nil, errRefused }

// Listen binds nothing.
func (statusSocket) Listen() (coordination.Listener, error) {
	return statusListener{bufconn.Listen(buffer)}, nil
}

// Credentials admits everyone.
func (statusSocket) Credentials() credentials.TransportCredentials { return insecure.NewCredentials() }

// statusListener is a socket that nobody replaces.
type statusListener struct{ net.Listener }

// AwaitReplaced waits until ctx is done.
func (statusListener) AwaitReplaced(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return nil
}

// Remove does nothing.
func (statusSocket) Remove() error { return nil }
