package coordination

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/topology"
)

// protocolVersion is that of coordination.proto.
const protocolVersion = 1

// maxMessage bounds what a client can send: a thousand VFs take about 60 KiB.
const maxMessage = 4 << 20

// stopTimeout is how long calls in flight get when a server stops; the other plugin then takes over.
const stopTimeout = 50 * time.Millisecond

// server puts a coordinator on the socket.
type server struct {
	api.UnimplementedCoordinationServer
	coordinator *coordinator
}

// serve answers on a listener until ctx is done.
func (s *server) serve(ctx context.Context, listener net.Listener) error {
	g := grpc.NewServer(grpc.Creds(peerCredentials{}), grpc.MaxRecvMsgSize(maxMessage))
	api.RegisterCoordinationServer(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(listener) }()
	select {
	case err := <-done:
		return fmt.Errorf("serve coordination socket: %w", err)
	case <-ctx.Done():
		kill := time.AfterFunc(stopTimeout, g.Stop)
		defer kill.Stop()
		g.GracefulStop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // stopped before it had begun
			return fmt.Errorf("serve coordination socket: %w", err)
		}
		return nil
	}
}

// Join takes announcements until the plugin goes.
func (s *server) Join(stream grpc.BidiStreamingServer[api.Announcement, api.Welcome]) error {
	if err := stream.Send(&api.Welcome{Protocol: protocolVersion}); err != nil {
		return err
	}
	var joined []string
	defer func() {
		for _, name := range joined {
			s.coordinator.leave(name)
		}
	}()
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		announcement, err := decodeAnnouncement(message)
		if err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		s.coordinator.announce(message.GetResource(), Kind(message.GetKind()), announcement)
		if !slices.Contains(joined, message.GetResource()) {
			joined = append(joined, message.GetResource())
		}
	}
}

// Prefer answers GetPreferredAllocation.
func (s *server) Prefer(ctx context.Context, q *api.PreferRequest) (*api.PreferResponse, error) {
	ids, reason, err := s.coordinator.prefer(ctx, question{
		resource:    q.GetResource(),
		available:   q.GetAvailable(),
		mustInclude: q.GetMustInclude(),
		size:        int(q.GetSize()),
	})
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &api.PreferResponse{Devices: ids, Reason: reason}, nil
}

// Allocated records what the kubelet took.
func (s *server) Allocated(ctx context.Context, q *api.AllocatedRequest) (*api.AllocatedResponse, error) {
	order, refusal := s.coordinator.allocated(ctx, q.GetResource(), q.GetDevices())
	return &api.AllocatedResponse{Devices: order, Refusal: refusal}, nil
}

// Status tells everything.
func (s *server) Status(context.Context, *api.StatusRequest) (*api.StatusResponse, error) {
	answer := s.coordinator.status()
	answer.Protocol = protocolVersion
	answer.Pid = int64(os.Getpid())
	return answer, nil
}

func decodeAnnouncement(m *api.Announcement) (Announcement, error) {
	if m.GetResource() == "" || (Kind(m.GetKind()) != GPU && Kind(m.GetKind()) != VF) {
		return Announcement{}, fmt.Errorf("announce %q: kind %q is neither %s nor %s", m.GetResource(), m.GetKind(), GPU, VF)
	}
	var a Announcement
	for _, d := range m.GetDevices() {
		address, err := topology.ParseAddress(d.GetAddress())
		if err != nil {
			return Announcement{}, fmt.Errorf("announce %s of %s: %w", d.GetId(), m.GetResource(), err)
		}
		device := Device{ID: d.GetId(), Address: address, Healthy: d.GetHealthy()}
		if d.Numa != nil {
			device.NUMA = topology.Node(int(d.GetNuma()))
		}
		a.Devices = append(a.Devices, device)
	}
	for _, l := range m.GetLinks() {
		from, err := topology.ParseAddress(l.GetA())
		to, err2 := topology.ParseAddress(l.GetB())
		if err := errors.Join(err, err2); err != nil {
			return Announcement{}, fmt.Errorf("announce link of %s: %w", m.GetResource(), err)
		}
		a.Links = append(a.Links, topology.Link{A: from, B: to, Type: topology.LinkType(l.GetType()), Hops: int(l.GetHops()), Count: int(l.GetCount())})
	}
	return a, nil
}

func encodeAnnouncement(resource string, kind Kind, a Announcement) *api.Announcement {
	m := &api.Announcement{Resource: resource, Kind: string(kind)}
	for _, d := range a.Devices {
		m.Devices = append(m.Devices, encodeDevice(d))
	}
	for _, l := range a.Links {
		m.Links = append(m.Links, &api.Link{A: l.A.String(), B: l.B.String(), Type: string(l.Type), Hops: uint32(l.Hops), Count: uint32(l.Count)})
	}
	return m
}

func encodeDevice(d Device) *api.Device {
	m := &api.Device{Id: d.ID, Address: d.Address.String(), Healthy: d.Healthy}
	if n, known := d.NUMA.Number(); known {
		numa := uint32(n)
		m.Numa = &numa
	}
	return m
}
