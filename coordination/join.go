package coordination

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/survive"
)

// stayJoined keeps a Join stream open and announces every member over it. A server of a foreign protocol, or
// one that refuses an announcement, is left alone for an electionPause: it may be replaced.
func (n *Node) stayJoined(ctx context.Context) {
	var complaint string
	for {
		err := survive.Do(n.config.Log, func() error { return n.join(ctx) })
		if ctx.Err() != nil {
			return
		}
		reason := status.Convert(err).Message()
		switch {
		case status.Code(err) == codes.Unimplemented:
			if !n.foreign.Swap(true) {
				n.config.Log.Error("place devices without the other plugin", "reason", reason)
			}
		case refused(err):
			if reason != complaint {
				n.config.Log.Error("place devices without the other plugin: the server refuses what is announced",
					"reason", reason)
			}
			complaint = reason
		default:
			complaint = ""
			n.config.Log.Warn("lost the coordination server", "error", err)
		}
		if !refused(err) {
			select {
			case n.lost <- struct{}{}:
			default:
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(joinPause(err)):
		}
	}
}

// joinPause is how long to wait before the next Join. What would most likely end in the same way again is not
// tried soon.
func joinPause(err error) time.Duration {
	if status.Code(err) == codes.Unimplemented || refused(err) || survive.Panicked(err) {
		return electionPause
	}
	return electionStep
}

// join opens one stream and announces on it until it breaks.
func (n *Node) join(ctx context.Context) error {
	ctx, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	stream, err := n.client.Join(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	welcome, err := stream.Recv()
	if err != nil {
		return err
	}
	server := version{welcome.GetProtocol(), welcome.GetMinor()}
	if err := server.serves(protocol); err != nil {
		return status.Error(codes.Unimplemented, err.Error())
	}
	n.config.Log.Info("join coordination", "protocol", server.String())
	n.foreign.Store(false)
	n.joined.Store(true)
	defer n.joined.Store(false)
	n.dropReturned()
	acknowledged := make(chan struct{}, 1)
	go func() { lose(hear(stream, acknowledged)) }()
	sent := map[string]*api.Announcement{}
	for {
		announcements, changed := n.announcements()
		for _, a := range announcements {
			if sent[a.GetResource()] == a {
				continue
			}
			if err := checkAnnouncement(a); err != nil {
				n.config.Log.Error("place the devices of a resource without the other plugin",
					"resource", a.GetResource(),
					"reason", status.Convert(err).Message())
				sent[a.GetResource()] = a
				n.letGo(a)
				continue
			}
			if err := n.announce(ctx, stream, a, acknowledged); err != nil {
				return err
			}
			sent[a.GetResource()] = a
		}
		if err := n.tellReturned(ctx, stream, changed); err != nil {
			return err
		}
	}
}

// dropReturned forgets which Allocates have returned: a server before was told of those, and the new one
// would take its next Allocate of the same devices for one of them.
func (n *Node) dropReturned() {
	for {
		select {
		case <-n.returned:
		default:
			return
		}
	}
}

// tellReturned tells a server of Allocates that have returned, until there is something to announce or ctx is
// done.
func (n *Node) tellReturned(
	ctx context.Context, stream api.Coordination_JoinClient, changed <-chan struct{},
) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
			return nil
		case message := <-n.returned:
			if err := stream.Send(message); err != nil {
				<-ctx.Done() // the stream tells why
				return context.Cause(ctx)
			}
		}
	}
}

// hear passes on what the server acknowledges, until the stream breaks, and returns why.
func hear(stream api.Coordination_JoinClient, acknowledged chan<- struct{}) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
		select {
		case acknowledged <- struct{}{}:
		default: // more than was announced
		}
	}
}

// announce sends an announcement and waits until the server goes by it, which it acknowledges.
func (n *Node) announce(
	ctx context.Context, stream api.Coordination_JoinClient, a *api.Announcement, acknowledged <-chan struct{},
) error {
	if err := stream.Send(a); err != nil {
		<-ctx.Done() // the stream tells why
		return context.Cause(ctx)
	}
	select {
	case <-acknowledged:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	n.letGo(a)
	return nil
}

// letGo lets go who waits for an announcement.
func (n *Node) letGo(a *api.Announcement) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range n.members {
		if m.message != a {
			continue
		}
		select {
		case <-m.taken: // by the server before, too
		default:
			close(m.taken)
		}
	}
}

// announcements returns the newest of every member that has one, and a channel that is closed once there is a
// newer one.
func (n *Node) announcements() ([]*api.Announcement, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []*api.Announcement
	for _, m := range n.members {
		if m.message != nil {
			all = append(all, m.message)
		}
	}
	return all, n.changed
}
