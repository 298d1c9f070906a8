// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/system"
)

// membership is a plugin's connection to the server of the node, which may be in the same process.
type membership struct {
	own       *atomic.Pointer[nodeServer] // the server while this process serves, which is asked directly
	client    api.CoordinationClient
	announced *announcements
	allocates *ownAllocates
	log       *slog.Logger

	lost system.Trigger // signals that the connection to the server broke

	foreign atomic.Bool // the server has an incompatible protocol and is not called
	joined  atomic.Bool
}

// newMembership returns a membership without a connection.
func newMembership(client api.CoordinationClient, log *slog.Logger) *membership {
	return &membership{
		own: &atomic.Pointer[nodeServer]{}, client: client, announced: &announcements{},
		allocates: newOwnAllocates(), log: log, lost: system.NewTrigger(),
	}
}

// errForeign means that a server exists and must not be called.
var errForeign = errors.New("the server has another protocol version")

// ask makes a call of the coordinator: directly if this process serves, otherwise over the socket. If the
// server of this process has stopped since, the call goes to the next server, over the socket.
func ask[Q, A any](
	ctx context.Context, m *membership, q Q, direct func(*nodeServer, context.Context, Q) (A, error),
	remote func(api.CoordinationClient, context.Context, Q, ...grpc.CallOption) (A, error),
) (none A, err error) {
	if own := m.own.Load(); own != nil {
		answer, err := callDirectly(ctx, own, func() (A, error) { return direct(own, ctx, q) })
		if status.Code(err) != codes.Unavailable {
			return answer, err
		}
	}
	if m.foreign.Load() {
		return none, errForeign
	}
	return remote(m.client, ctx, q, grpc.WaitForReady(true))
}

// callDirectly calls the server of this process until ctx is done. It survives a panic and a coordinator that
// hangs: maxCalls calls at most are in progress, besides those of other processes, whose connections have
// limits of their own.
func callDirectly[A any](ctx context.Context, own *nodeServer, call func() (A, error)) (A, error) {
	return system.AwaitResult(ctx, system.CallInTurn(ctx, own.calls, func() (A, error) {
		return system.SurviveResult(own.log, call)
	}))
}

// run keeps a Join stream open and announces every resource until ctx is done. After an incompatible server,
// or the rejection of an announcement, run waits for electionPause: another server may follow.
func (m *membership) run(ctx context.Context) {
	var rejected system.Complaint
	for {
		err := system.Survive(m.log, func() error { return m.join(ctx) })
		if ctx.Err() != nil {
			return
		}
		m.logLoss(err, &rejected)
		if !isRejection(err) {
			m.lost.Fire()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(joinPause(err)):
		}
	}
}

// logLoss logs the end of a stream, a repeated rejection once.
func (m *membership) logLoss(err error, rejected *system.Complaint) {
	reason := status.Convert(err).Message()
	switch {
	case status.Code(err) == codes.Unimplemented:
		if !m.foreign.Swap(true) {
			m.log.Error("placing devices without the other plugin: protocol versions differ", "reason", reason)
		}
	case isRejection(err):
		if rejected.IsNew(err) {
			m.log.Error("placing devices without the other plugin: the server rejected the announcement",
				"reason", reason)
		}
	default:
		rejected.IsNew(nil)
		m.log.Warn("lost the coordination server", "error", err)
	}
}

// joinPause returns the pause before the next Join, longer after errors that are likely to recur.
func joinPause(err error) time.Duration {
	if status.Code(err) == codes.Unimplemented || isRejection(err) || system.Panicked(err) {
		return electionPause
	}
	return electionStep
}

// join opens one stream and sends announcements until the stream breaks.
func (m *membership) join(ctx context.Context) error {
	ctx, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	stream, err := m.client.Join(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	welcome, err := stream.Recv()
	if err != nil {
		return err
	}
	other := version{welcome.GetProtocol(), welcome.GetMinor()}
	if err := other.admits(protocol); err != nil {
		return status.Error(codes.Unimplemented, err.Error())
	}
	m.log.Info("joined coordination", "protocol", other.String())
	m.foreign.Store(false)
	m.joined.Store(true)
	defer m.joined.Store(false)
	acknowledged := system.NewTrigger()
	go func() { lose(receive(stream, acknowledged)) }()
	if err := m.tellAllocates(ctx, lose); err != nil {
		return err
	}
	sent := map[string]*api.Announcement{}
	for {
		messages, changed := m.announced.messages()
		for _, a := range messages {
			if sent[a.GetResource()] == a {
				continue
			}
			if err := m.announce(ctx, stream, acknowledged, a); err != nil {
				return err
			}
			sent[a.GetResource()] = a
			m.announced.release(a)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

// tellAllocates tells the server which Allocates are open, waits until the server knows, and goes on to tell
// with each change. The end of the stream is the end of the membership. An older server does not listen.
func (m *membership) tellAllocates(ctx context.Context, lose func(error)) error {
	stream, err := m.client.OpenAllocates(ctx)
	if err != nil {
		return err
	}
	message, changed := m.allocates.encode()
	_ = stream.Send(message) // the reason for an error is that of Header or RecvMsg
	header, err := stream.Header()
	if header == nil && err == nil {
		err = stream.RecvMsg(&api.OpenAllocatesResponse{})
	}
	if status.Code(err) == codes.Unimplemented {
		return nil
	}
	if err != nil {
		return err
	}
	go func() { lose(stream.RecvMsg(&api.OpenAllocatesResponse{})) }()
	go func() {
		for err == nil {
			select {
			case <-changed:
				message, changed = m.allocates.encode()
				err = stream.Send(message)
			case <-ctx.Done():
				return
			}
		}
	}()
	return nil
}

// announce sends an announcement and waits for the acknowledgement that the server uses the announcement. An
// announcement beyond the limits is logged and not sent.
func (m *membership) announce(
	ctx context.Context, stream api.Coordination_JoinClient, acknowledged <-chan struct{}, a *api.Announcement,
) error {
	if err := checkAnnouncement(a); err != nil {
		m.log.Error("placing devices of a resource without the other plugin: announcement exceeds a limit",
			"resource", a.GetResource(), "reason", status.Convert(err).Message())
		return nil
	}
	if err := stream.Send(a); err != nil { // the reason is that of receive
		<-ctx.Done()
		return context.Cause(ctx)
	}
	select {
	case <-acknowledged:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// receive forwards the server's acknowledgements until the stream breaks, and returns the reason.
func receive(stream api.Coordination_JoinClient, acknowledged system.Trigger) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
		acknowledged.Fire() // there may be more acknowledgements than announcements
	}
}
