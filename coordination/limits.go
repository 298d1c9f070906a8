package coordination

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tandem-k8s/tandem/coordination/api"
)

// What a client may send. The largest nodes known have 63 GPU partitions and some hundred VFs, but eight GPUs that 2,000 containers
// share each are 16,000 devices. So many fit, all held, into a checkpoint, and the kubelet takes no more than some 40,000 in one
// message. It takes a resource name of up to 317 bytes and device IDs of 63.
const (
	maxMessage   = 4 << 20 // bytes
	maxDevices   = 1 << 14 // of one resource
	maxLinks     = 1 << 14
	maxResources = 64
	maxName      = 512 // bytes of a name or an ID
)

// maxAnswer is how many bytes a server may answer: Status tells of all devices of all resources, and who holds them.
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
		if len(ids) > maxDevices {
			return status.Errorf(codes.InvalidArgument, "%d devices of %s, more than %d", len(ids), resource, maxDevices)
		}
		for _, id := range ids {
			if id == "" || len(id) > maxName {
				return status.Errorf(codes.InvalidArgument, "device ID of %d bytes of %s", len(id), resource)
			}
		}
	}
	return nil
}

// checkAnnouncement makes sure that an announcement is within the limits. A client checks it before a server does.
func checkAnnouncement(m *api.Announcement) error {
	ids := make([]string, 0, min(len(m.GetDevices()), maxDevices+1))
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
		return status.Errorf(codes.InvalidArgument, "%d devices of %s in %d bytes, more than %d", len(ids), m.GetResource(), size, maxMessage)
	}
	return nil
}

// refused reports whether a server turned an announcement down, so that it would again.
func refused(err error) bool {
	code := status.Code(err)
	return code == codes.InvalidArgument || code == codes.ResourceExhausted
}

// room says why a ledger does not take so many more devices of a resource; nil where it does.
func (l *ledger) room(name string, more int) error {
	known := max(len(l.holders), len(l.resources))
	if l.resources[name] == nil && l.holders[name] == nil && known >= maxResources {
		return fmt.Errorf("there are %d resources already", known)
	}
	if len(l.holders[name])+more > maxDevices {
		return fmt.Errorf("%d devices of %s are held already", len(l.holders[name]), name)
	}
	return nil
}

// announceTimeout is how long a question waits for what the plugin announces about its devices: it tells the kubelet of them at the same
// moment, and the kubelet can be faster.
const announceTimeout = 30 * time.Millisecond

// answerable waits until a question can be answered, or says why it cannot, before the kubelet is bothered with it. Resources never
// go away, so that what is answerable stays so.
func (c *coordinator) answerable(ctx context.Context, q question) error {
	announced, err := c.lacking(q)
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, announceTimeout)
	defer cancel()
	for err != nil {
		select {
		case <-announced:
			announced, err = c.lacking(q)
		case <-ctx.Done():
			return err
		}
	}
	return nil
}

// lacking says what has not been announced that a question is about, and then returns a channel that the next announcement closes.
func (c *coordinator) lacking(q question) (announced <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err = c.current().ledger.lacking(q); err != nil && c.announced == nil {
		c.announced = make(chan struct{})
	}
	return c.announced, err
}

// lacking says what has not been announced that a question is about.
func (l *ledger) lacking(q question) error {
	r := l.resources[q.resource]
	switch {
	case r == nil:
		return fmt.Errorf("choose %s: no plugin has announced it", q.resource)
	case len(q.available) > len(r.devices) || len(q.mustInclude) > len(r.devices):
		return fmt.Errorf("choose among %d devices of %s: only %d were announced", len(q.available), q.resource, len(r.devices))
	}
	return nil
}
