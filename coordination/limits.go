// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/resources"
)

// What a client may send, beside as many devices as a resource can have (resources.MaxDevices); the kubelet
// takes no more than some 40,000 in one message. It takes a resource name of up to 317 bytes and device IDs
// of 63.
const (
	maxMessage = 4 << 20 // bytes
	maxLinks   = 1 << 14
	maxName    = 512 // bytes of a name or an ID
)

// maxAnswer is how many bytes a server may answer: Status tells of all devices of all resources, and who
// holds them.
const maxAnswer = 64 << 20

// How many clients there may be: two plugins, with one connection each, and people.
const (
	maxConnections   = 32
	maxCalls         = 32 // at a time on one connection
	handshakeTimeout = time.Second
	idleTimeout      = 30 * time.Second // of a connection without a call; a plugin's Join is one
)

// limits keep a server alive whatever is sent to it.
func limits() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.MaxConcurrentStreams(maxCalls),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTimeout}),
	}
}

// limitedListener refuses connections beyond maxConnections.
type limitedListener struct {
	*net.UnixListener
	slots chan struct{}
}

func newLimitedListener(l *net.UnixListener) limitedListener {
	return limitedListener{l, make(chan struct{}, maxConnections)}
}

// Accept returns the next connection for which there is room; the others are closed.
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

// countedConn gives its slot back when it is closed.
type countedConn struct {
	*net.UnixConn
	done func()
}

func (c *countedConn) Close() error {
	defer c.done()
	return c.UnixConn.Close()
}

// checkIDs makes sure that a client names a resource and devices within the limits.
func checkIDs(resource string, lists ...[]string) error {
	if resource == "" || len(resource) > maxName {
		return status.Errorf(codes.InvalidArgument, "resource name of %d bytes", len(resource))
	}
	for _, ids := range lists {
		if len(ids) > resources.MaxDevices {
			return status.Errorf(codes.InvalidArgument, "%d devices of %s, more than %d", len(ids), resource,
				resources.MaxDevices)
		}
		for _, id := range ids {
			if id == "" || len(id) > maxName {
				return status.Errorf(codes.InvalidArgument, "device ID of %d bytes of %s", len(id), resource)
			}
		}
	}
	return nil
}

// checkAnnouncement makes sure that an announcement is within the limits. A client checks it before a server
// does.
func checkAnnouncement(m *api.Announcement) error {
	ids := make([]string, 0, min(len(m.GetDevices()), resources.MaxDevices+1))
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

// refused reports whether a server turned an announcement down, so that it would again.
func refused(err error) bool {
	code := status.Code(err)
	return code == codes.InvalidArgument || code == codes.ResourceExhausted
}
