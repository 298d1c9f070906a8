// SPDX-License-Identifier: Apache-2.0

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

// Member is one resource of one plugin in the coordination. Its methods never fail and never block longer
// than their deadline: without the coordinator they use only this plugin's data.
type Member struct {
	node     *Node
	resource string
	kind     device.Kind
	log      *slog.Logger
	write    func() (struct{}, error) // writes the last handout for the other plugin

	// The following fields are guarded by node.mu.
	announcement device.Announcement
	message      *api.Announcement // the announcement in its wire format; nil before the first announcement
	taken        chan struct{}     // closed when the server has accepted it; nil before the first one
	last         handout           // last allocation to a container
}

// Publish announces the resource's devices; the latest announcement replaces the previous one.
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

// takeTimeout is the maximum time for the coordinator to accept an announcement. It reads the PCI tree, and
// may have to be started first.
const takeTimeout = time.Second

// AwaitTaken waits until the coordinator uses the last announcement, for at most a second. The kubelet must
// not learn of a new device before, because it would ask about a device of unknown location.
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

// Prefer answers GetPreferredAllocation within 100 ms: size of the available IDs, including the mustInclude
// IDs.
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

// placed returns devices for package placement. A device that was not announced has no location.
func (m *Member) placed(ids []string) []placement.Device {
	known, _ := m.devices()
	placed := make([]placement.Device, 0, len(ids))
	for _, id := range ids {
		placed = append(placed, placement.Device{ID: id, Address: known[id].Address})
	}
	return placed
}

// devices returns the devices of the last announcement by ID, and the links between GPUs.
func (m *Member) devices() (map[string]device.Device, []topology.Link) {
	m.node.mu.Lock()
	defer m.node.mu.Unlock()
	known := make(map[string]device.Device, len(m.announcement.Devices))
	for _, d := range m.announcement.Devices {
		known[d.ID] = d
	}
	return known, m.announcement.Links
}

// Allocated reports the devices that the kubelet took. It returns the same IDs in the order in which the
// container should list them, so that its i-th GPU pairs with its i-th VF; without an answer of the
// coordinator it uses only this plugin's data. An error is always the coordinator's rejection, with a message
// for the pod's owner: the kubelet must fail the pod with it. Call Returned when the kubelet's Allocate call
// ends. The attribute is for the log and names the container, if known.
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

// Returned reports to the coordinator that the kubelet is about to receive the response to an Allocate of
// these devices. It does not wait.
func (m *Member) Returned(ids []string) {
	select {
	case m.node.returned <- &api.Announcement{Resource: m.resource, Returned: ids}:
	default: // the server uses its timeout
	}
}
