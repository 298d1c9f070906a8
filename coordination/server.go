// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/topology"
)

// stopTimeout is the time for calls in flight when a server stops; then the other plugin takes over.
const stopTimeout = 50 * time.Millisecond

// nodeServer serves a coordinator on the socket.
type nodeServer struct {
	api.UnimplementedCoordinationServer
	coordinator *admission.Coordinator
	remarks     remarks
	clients     credentials.TransportCredentials // check of clients
	calls       system.Turn                      // of this process, with room for maxCalls
	log         *slog.Logger
	peers       peers
}

// serve answers on a listener until ctx is done, and returns when all calls in flight are answered, or after
// stopTimeout. Before the wait, serve calls stopping.
func (s *nodeServer) serve(ctx context.Context, listener net.Listener, stopping func()) error {
	g := newTransport(s, s.clients, s.log)
	done := make(chan error, 1)
	go func() { done <- g.Serve(listener) }()
	select {
	case err := <-done:
		stopping()
		return fmt.Errorf("serve coordination socket: %w", err)
	case <-ctx.Done():
		stopping()
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		defer context.AfterFunc(ending, g.Stop)()
		g.GracefulStop()
		_ = s.calls.Await(ending)
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // stopped before the start
			return fmt.Errorf("serve coordination socket: %w", err)
		}
		return nil
	}
}

// Join accepts announcements until the plugin disconnects. A plugin with an incompatible protocol is rejected
// and works alone.
func (s *nodeServer) Join(stream grpc.BidiStreamingServer[api.Announcement, api.Welcome]) error {
	welcome := &api.Welcome{Protocol: protocol.major, Minor: protocol.minor}
	if err := stream.Send(welcome); err != nil {
		return err
	}
	p := s.peers.join(stream.Context())
	defer s.peers.leave(p, s.reannounce, s.coordinator.Leave)
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if ids := message.GetReturned(); len(ids) > 0 { // of an older plugin
			q := &api.ReturnedRequest{Resource: message.GetResource(), Devices: ids}
			if _, err := s.Returned(stream.Context(), q); err != nil {
				return err
			}
			continue
		}
		client := message.GetVersion() // without one 0.0, which no program uses
		if err := protocol.admits(version{client.GetMajor(), client.GetMinor()}); err != nil {
			return status.Error(codes.Unimplemented, err.Error())
		}
		if err := s.peers.announce(p, message, s.announce); err != nil {
			return err
		}
		if err := stream.Send(welcome); err != nil {
			return err
		}
	}
}

// reannounce accepts an announcement that was accepted before.
func (s *nodeServer) reannounce(p *joined, m *api.Announcement) {
	if err := s.announce(p, m); err != nil {
		s.log.Warn("devices of the remaining plugin are not used", "resource", m.GetResource(), "error", err)
	}
}

// announce accepts an announcement of a plugin, of this process or another one.
func (s *nodeServer) announce(p *joined, m *api.Announcement) error {
	if err := checkAnnouncement(m); err != nil {
		return err
	}
	announcement, err := device.Decode(m)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	announcement.Own = p.pid == int64(os.Getpid())
	if err := s.coordinator.Announce(m.GetResource(), device.Kind(m.GetKind()), announcement); err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	return nil
}

// Prefer answers GetPreferredAllocation.
func (s *nodeServer) Prefer(ctx context.Context, q *api.PreferRequest) (*api.PreferResponse, error) {
	if err := checkIDs(q.GetResource(), q.GetAvailable(), q.GetMustInclude(), q.GetVanished()); err != nil {
		return nil, err
	}
	ids, reason, err := s.coordinator.Prefer(ctx, q)
	if err != nil {
		return nil, status.Error(codeOf(err), err.Error())
	}
	return &api.PreferResponse{Devices: slices.Clone(ids), Reason: reason}, nil
}

// codeOf returns the code of a call that the coordinator has not answered.
func codeOf(err error) codes.Code {
	if errors.Is(err, admission.ErrClosed) {
		return codes.Unavailable
	}
	return codes.FailedPrecondition
}

// Allocated records the devices that the kubelet took.
func (s *nodeServer) Allocated(ctx context.Context, q *api.AllocatedRequest) (*api.AllocatedResponse, error) {
	if err := checkIDs(q.GetResource(), q.GetDevices()); err != nil {
		return nil, err
	}
	s.coordinator.Allocates.StartCall(callOf(q))
	answer, err := s.coordinator.Allocated(ctx, q.GetResource(), q.GetDevices())
	if err != nil {
		return nil, status.Error(codeOf(err), err.Error())
	}
	return answer, nil
}

// callOf identifies the Allocate of a request: for an older plugin by its devices.
func callOf(q interface {
	GetResource() string
	GetDevices() []string
	GetCall() *api.Call
}) (plugin, number uint64) {
	if c := q.GetCall(); c.GetPlugin() != 0 {
		return c.GetPlugin(), c.GetNumber()
	}
	text := fnv.New64a()
	fmt.Fprint(text, q.GetResource(), " ", slices.Sorted(slices.Values(q.GetDevices())))
	return 0, text.Sum64()
}

// Returned records the end of an Allocate.
func (s *nodeServer) Returned(ctx context.Context, q *api.ReturnedRequest) (*api.ReturnedResponse, error) {
	if err := checkIDs(q.GetResource(), q.GetDevices()); err != nil {
		return nil, err
	}
	defer s.coordinator.Allocates.EndCall(callOf(q))
	if err := s.coordinator.Returned(ctx, q.GetResource(), q.GetDevices(), q.GetFailed()); err != nil {
		return nil, status.Error(codeOf(err), err.Error())
	}
	return &api.ReturnedResponse{}, nil
}

// maxOpen is the maximum number of open Allocates of a plugin, more than the kubelet's workers for pods.
const maxOpen = 4096

// OpenAllocates records which Allocates of a plugin are open until the plugin disconnects.
func (s *nodeServer) OpenAllocates(
	stream grpc.ClientStreamingServer[api.OpenAllocatesRequest, api.OpenAllocatesResponse],
) error {
	message, err := stream.Recv()
	if err != nil {
		return err
	}
	tell, leave := s.coordinator.Allocates.AddStream(message.GetPlugin())
	defer leave()
	for ; err == nil; message, err = stream.Recv() {
		if len(message.GetOpen()) > maxOpen {
			return status.Errorf(codes.InvalidArgument, "more than %d Allocates are open", maxOpen)
		}
		tell(message.GetCount(), message.GetOpen())
		_ = stream.SendHeader(nil) // once
	}
	return err
}

// Pair returns the best VFs for each GPU.
func (s *nodeServer) Pair(_ context.Context, q *api.PairRequest) (*api.PairResponse, error) {
	vfs, err := decodeVFs(q)
	if err != nil {
		return nil, err
	}
	served, written, err := s.coordinator.Pair(q.GetResource(), q.GetDevices(), q.GetFile(), vfs)
	if err != nil {
		return nil, status.Error(codeOf(err), err.Error())
	}
	answer := &api.PairResponse{Written: written}
	for _, served := range served {
		answer.Served = append(answer.Served, &api.Served{Gpu: served.GPU.String(), Device: served.VF})
	}
	return answer, nil
}

// decodeVFs converts the VFs of a request.
func decodeVFs(q *api.PairRequest) ([]pairs.VF, error) {
	var vfs []pairs.VF
	for _, vf := range q.GetVfs() {
		address, err := topology.ParseAddress(vf.GetAddress())
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "pair %s: %v", vf.GetDevice(), err)
		}
		vfs = append(vfs, pairs.VF{
			ID: vf.GetDevice(), Address: address, Resource: q.GetResource(),
			RDMA: vf.GetRdma(), Netdev: vf.GetNetdev(),
		})
	}
	return vfs, nil
}

// Status returns the complete state.
func (s *nodeServer) Status(ctx context.Context, _ *api.StatusRequest) (*api.StatusResponse, error) {
	answer := s.coordinator.Status(ctx)
	answer.Protocol, answer.Minor = protocol.major, protocol.minor
	answer.Pid, answer.Mode = int64(os.Getpid()), string(DevicePlugin)
	answer.Peers, answer.Alignment = s.peers.encode(), s.remarks.alignment()
	announced, _ := s.coordinator.Announced()
	answer.Notes = append(s.remarks.notes(ctx, answer.GetResources()), hintNotes(announced)...)
	return answer, nil
}

// Explain returns the decisions for a pod with their reasons; without a pod, all known decisions.
func (s *nodeServer) Explain(ctx context.Context, q *api.ExplainRequest) (*api.ExplainResponse, error) {
	if q.GetPod() == "" && q.GetNamespace() == "" && q.GetContainer() == "" {
		return &api.ExplainResponse{Decisions: s.coordinator.Recent()}, nil
	}
	return explain(ctx, q, s.coordinator.Explain)
}

// explain returns the decisions for a pod by a Teller's function.
func explain(
	ctx context.Context, q *api.ExplainRequest,
	by func(ctx context.Context, namespace, pod, container string) ([]*api.Decision, error),
) (*api.ExplainResponse, error) {
	if q.GetPod() == "" {
		return nil, status.Error(codes.InvalidArgument, "explain which pod?")
	}
	if err := checkIDs(q.GetPod()); err != nil {
		return nil, err
	}
	found, err := by(ctx, q.GetNamespace(), q.GetPod(), q.GetContainer())
	if err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	return &api.ExplainResponse{Decisions: found}, nil
}

// joined is a connected plugin. Only its Join call changes it, through peers.
type joined struct {
	pid       int64
	version   *api.Version
	announced map[string]*api.Announcement // the last one of each resource
}

// peers are the connected plugins, in the order of their connections. During a rolling update the new plugin
// of a resource starts before the old one ends: the announcements of the newest plugin count.
type peers struct {
	turn sync.Mutex // of announcements, which read the PCI tree

	mu  sync.Mutex
	all []*joined
}

func (p *peers) join(ctx context.Context) *joined {
	j := &joined{announced: map[string]*api.Announcement{}}
	if caller, ok := grpcpeer.FromContext(ctx); ok {
		if known, ok := caller.AuthInfo.(peer); ok {
			j.pid = int64(known.pid)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, j)
	return j
}

// leave removes a plugin. For each of its resources it calls count with the last announcement of the newest
// plugin left, if the announcements of the leaving one counted, and gone if no plugin is left.
func (p *peers) leave(j *joined, count func(*joined, *api.Announcement), gone func(resource string)) {
	p.turn.Lock()
	defer p.turn.Unlock()
	for name, left := range p.remove(j) {
		if left != nil {
			count(left, left.announced[name])
		} else {
			gone(name)
		}
	}
}

// remove removes a plugin. For each resource whose announcements of this plugin counted, it returns the
// newest plugin left, nil for none.
func (p *peers) remove(j *joined) map[string]*joined {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := map[string]*joined{}
	for name := range j.announced {
		if p.newest(name) == j {
			next[name] = nil
		}
	}
	p.all = slices.DeleteFunc(p.all, func(other *joined) bool { return other == j })
	for name := range next {
		next[name] = p.newest(name)
	}
	return next
}

// announce records an announcement, and calls count if the announcement counts.
func (p *peers) announce(
	j *joined, m *api.Announcement, count func(*joined, *api.Announcement) error,
) error {
	p.turn.Lock()
	defer p.turn.Unlock()
	if !p.record(j, m) {
		return nil
	}
	return count(j, m)
}

// record records an announcement, and reports whether it counts.
func (p *peers) record(j *joined, m *api.Announcement) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	j.version = m.GetVersion()
	j.announced[m.GetResource()] = m
	return p.newest(m.GetResource()) == j
}

// newest returns the plugin with a resource that has connected last, nil for none.
func (p *peers) newest(resource string) *joined {
	for _, j := range slices.Backward(p.all) {
		if j.announced[resource] != nil {
			return j
		}
	}
	return nil
}

// encode lists the plugins that have announced devices: before an announcement their version is unknown.
func (p *peers) encode() []*api.Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]*api.Peer, 0, len(p.all))
	for _, j := range p.all {
		if len(j.announced) == 0 {
			continue
		}
		v := j.version // of which only the known fields are passed on
		list = append(list, &api.Peer{
			Pid:       j.pid,
			Serves:    j.pid == int64(os.Getpid()),
			Version:   &api.Version{Major: v.GetMajor(), Minor: v.GetMinor(), Build: v.GetBuild()},
			Resources: slices.Sorted(maps.Keys(j.announced)),
		})
	}
	slices.SortStableFunc(list, func(a, b *api.Peer) int { return cmp.Compare(a.GetPid(), b.GetPid()) })
	return list
}

// newTransport returns a gRPC server with a service, which checks clients, and limits clients and panics.
func newTransport(
	service api.CoordinationServer, clients credentials.TransportCredentials, log *slog.Logger,
) *grpc.Server {
	g := grpc.NewServer(append(serverLimits(), grpc.Creds(clients), survivingCalls(log),
		survivingStreams(log))...)
	api.RegisterCoordinationServer(g, service)
	return g
}

// serverLimits returns the options that protect a server from any message.
func serverLimits() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.MaxConcurrentStreams(maxCalls),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTimeout}),
	}
}

// survivingCalls limits a panic to one call; the caller then chooses alone.
func survivingCalls(log *slog.Logger) grpc.ServerOption {
	return grpc.ChainUnaryInterceptor(func(
		ctx context.Context, q any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
	) (any, error) {
		ctx, cancel := untilDeadline(ctx)
		defer cancel()
		return system.SurviveResult(log, func() (any, error) { return handle(ctx, q) })
	})
}

// survivingStreams limits a panic to one stream; the plugin joins again.
func survivingStreams(log *slog.Logger) grpc.ServerOption {
	return grpc.ChainStreamInterceptor(func(
		server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler,
	) error {
		return system.Survive(log, func() error { return handle(server, stream) })
	})
}
