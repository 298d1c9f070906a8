package coordination

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/bounded"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Member is one resource of one plugin taking part in coordination. Its methods never fail and never block
// for longer than their deadline: with the coordinator away they answer from what this plugin knows alone.
type Member struct {
	node     *Node
	resource string
	kind     device.Kind
	log      *slog.Logger
	write    func() (struct{}, error) // the last handout, for the other plugin

	// guarded by node.mu
	announcement device.Announcement
	message      *api.Announcement // the announcement as it is sent; nil before the first
	taken        chan struct{}     // closed when the server has taken it over; nil before the first
	last         handout           // what a container was given last
}

// Publish announces the resource's devices; the newest announcement replaces the one before.
func (m *Member) Publish(a device.Announcement) {
	a.Own = true
	if err := m.node.machine.refresh(a); err != nil {
		m.log.Warn("keep the PCI tree as it was read before", "error", err)
	}
	m.node.mu.Lock()
	defer m.node.mu.Unlock()
	if m.message != nil && slices.Equal(a.Devices, m.announcement.Devices) &&
		slices.Equal(a.Links, m.announcement.Links) {
		return
	}
	m.announcement, m.message, m.taken = a, m.encode(a), make(chan struct{})
	close(m.node.changed)
	m.node.changed = make(chan struct{})
}

func (m *Member) encode(a device.Announcement) *api.Announcement {
	message := device.Encode(m.resource, m.kind, a)
	message.Version = &api.Version{Major: protocol.major, Minor: protocol.minor, Build: build()}
	return message
}

// takeTimeout is how long the coordinator may take for an announcement. It reads the PCI tree, and may have
// to be found first.
const takeTimeout = time.Second

// AwaitTaken waits until the coordinator goes by what was published last, a second at the most: before that
// the kubelet must not know of a new device, for it would ask about one that is nowhere.
func (m *Member) AwaitTaken(ctx context.Context) {
	m.node.mu.Lock()
	taken := m.taken
	m.node.mu.Unlock()
	if taken == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, takeTimeout)
	defer cancel()
	select {
	case <-taken:
	case <-ctx.Done():
	}
}

// Prefer answers GetPreferredAllocation within 100 ms: size of the available IDs, the mustInclude ones among
// them.
func (m *Member) Prefer(ctx context.Context, available, mustInclude []string, size int) []string {
	decision := m.log.With("size", size, "available", len(available), "must_include", len(mustInclude))
	ctx, cancel := context.WithTimeout(ctx, bounded.Coordinator)
	defer cancel()
	answer, err := m.ask(ctx, available, mustInclude, size)
	if err == nil {
		decision.Info("prefer", "chosen", answer.GetDevices(), "source", "coordinator",
			"reason", answer.GetReason())
		return answer.GetDevices()
	}
	m.node.observer().Alone(admission.PreferCall)
	chosen, reason := m.choose(available, mustInclude, size)
	decision.Warn("prefer", "chosen", chosen, "source", "local", "reason", reason, "error", err)
	return chosen
}

func (m *Member) ask(
	ctx context.Context, available, mustInclude []string, size int,
) (*api.PreferResponse, error) {
	server, err := m.node.server()
	if err != nil {
		return nil, err
	}
	return server.Prefer(ctx, &api.PreferRequest{
		Resource:    m.resource,
		Available:   available,
		MustInclude: mustInclude,
		Size:        uint32(size),
	}, grpc.WaitForReady(true))
}

func (m *Member) tell(ctx context.Context, ids []string) (*api.AllocatedResponse, error) {
	server, err := m.node.server()
	if err != nil {
		return nil, err
	}
	return server.Allocated(ctx, &api.AllocatedRequest{Resource: m.resource, Devices: ids},
		grpc.WaitForReady(true))
}

// placed are devices as placement knows them. One that was not announced is nowhere.
func (m *Member) placed(ids []string) []placement.Device {
	known, _ := m.devices()
	placed := make([]placement.Device, 0, len(ids))
	for _, id := range ids {
		placed = append(placed, placement.Device{ID: id, Address: known[id].Address})
	}
	return placed
}

// devices returns what was announced last, by ID, and the links between GPUs.
func (m *Member) devices() (map[string]device.Device, []topology.Link) {
	m.node.mu.Lock()
	defer m.node.mu.Unlock()
	known := make(map[string]device.Device, len(m.announcement.Devices))
	for _, d := range m.announcement.Devices {
		known[d.ID] = d
	}
	return known, m.announcement.Links
}

// Allocated reports what the kubelet took, and returns the same IDs in the order in which the container
// should list them, so that its i-th GPU pairs with its i-th VF; where the coordinator does not answer, by
// what this plugin knows alone. An error is the coordinator's refusal, a sentence for the pod's owner, and
// never anything else: the kubelet is to fail the pod with it. Call Returned when the Allocate of the kubelet
// ends. The attribute is for the log: the container that has the devices, as far as it is known.
func (m *Member) Allocated(ctx context.Context, ids []string) (order []string, to slog.Attr, err error) {
	ctx, cancel := context.WithTimeout(ctx, bounded.Coordinator)
	defer cancel()
	answer, err := m.tell(ctx, ids)
	if refusal := answer.GetRefusal(); refusal != "" {
		m.log.Error("refuse", "devices", ids, "reason", refusal)
		return nil, to, status.Error(codes.FailedPrecondition, refusal)
	}
	order = answer.GetDevices()
	if err != nil {
		m.node.observer().Alone(admission.AllocatedCall)
		order = m.inPairOrder(ids)
		m.log.Warn("list devices without the coordinator", "devices", order, "error", err)
	}
	m.handed(ids)
	if o := answer.GetContainer(); o != nil {
		to = slog.String("container", o.GetNamespace()+"/"+o.GetPod()+"/"+o.GetContainer())
	}
	if !device.SameSet(order, ids) {
		order = slices.Sorted(slices.Values(ids))
	}
	return order, to, nil
}

// Returned tells the coordinator that the kubelet is about to have its answer to the Allocate of some
// devices, whatever that is. It does not wait.
func (m *Member) Returned(ids []string) {
	if own := m.node.serving.Load(); own != nil {
		own.coordinator.Returned(m.resource, ids)
		return
	}
	select {
	case m.node.returned <- &api.Announcement{Resource: m.resource, Returned: ids}:
	default: // the server goes by the time
	}
}
