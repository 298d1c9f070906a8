// SPDX-License-Identifier: Apache-2.0

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

// stayJoined keeps a Join stream open and announces every member over it. After an incompatible server, or
// one that rejects an announcement, it waits for electionPause: the server may be replaced meanwhile.
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

// joinPause returns the pause before the next Join; it is longer after errors that are likely to recur.
func joinPause(err error) time.Duration {
	if status.Code(err) == codes.Unimplemented || refused(err) || survive.Panicked(err) {
		return electionPause
	}
	return electionStep
}

// join opens one stream and sends announcements until it breaks.
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

// dropReturned clears the reports of returned Allocates: they were meant for the previous server, and the new
// server would apply them to its next Allocate of the same devices.
func (n *Node) dropReturned() {
	for {
		select {
		case <-n.returned:
		default:
			return
		}
	}
}

// tellReturned reports returned Allocates to a server until there is something to announce or ctx is done.
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
				<-ctx.Done() // the stream has the reason
				return context.Cause(ctx)
			}
		}
	}
}

// hear forwards the server's acknowledgements until the stream breaks, and returns the reason.
func hear(stream api.Coordination_JoinClient, acknowledged chan<- struct{}) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
		select {
		case acknowledged <- struct{}{}:
		default: // more acknowledgements than announcements
		}
	}
}

// announce sends an announcement and waits for the server's acknowledgement that it uses the announcement.
func (n *Node) announce(
	ctx context.Context, stream api.Coordination_JoinClient, a *api.Announcement, acknowledged <-chan struct{},
) error {
	if err := stream.Send(a); err != nil {
		<-ctx.Done() // the stream has the reason
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

// letGo releases callers that wait for an announcement.
func (n *Node) letGo(a *api.Announcement) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range n.members {
		if m.message != a {
			continue
		}
		select {
		case <-m.taken: // already released, possibly by the previous server
		default:
			close(m.taken)
		}
	}
}

// announcements returns the latest announcement of every member, and a channel that is closed after the next
// one.
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
