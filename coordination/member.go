// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/topology"
)

// Member is one resource of one plugin in the coordination. The methods survive without the coordinator:
// Prefer then has no answer, and the others use only this plugin's data. Allocated fails only to refuse.
type Member struct {
	announced *announcement
	chooser   *chooser
	client    *membership
	listed    *listed
	withheld  *withholder
	config    *Config
	log       *slog.Logger

	unanswered sync.Map // Allocates without an answer of the coordinator, by their devices
}

// Publish announces the resource's devices; the latest announcement replaces the previous announcement.
func (m *Member) Publish(a device.Announcement) {
	a.Own = true
	if err := m.chooser.machine.Refresh(a); err != nil {
		m.log.Warn("PCI tree not read; using the last known tree", "error", err)
	}
	m.announced.publish(a)
}

// AwaitTaken waits until the coordinator uses the last announcement, for at most a second. The kubelet must
// not learn of a new device before, because the kubelet would ask about a device of unknown location.
func (m *Member) AwaitTaken(ctx context.Context) { m.announced.await(ctx) }

// List returns the resource's devices for the coordinator and for the kubelet, and a channel that is closed
// when the devices must be listed again: those that the plugin finds, as unhealthy if they must not be
// assigned now, and gone ones that the kubelet may look up, as unhealthy. One goroutine calls List.
func (m *Member) List(found []device.Device) (list []device.Device, again <-chan struct{}) {
	return m.withheld.withhold(m.announced.resource, m.announced.kind, m.listed.addFound(found))
}

// Prefer asks the coordinator a question of the kubelet until ctx is done. An error means that there is no
// answer: Alone then answers the kubelet.
func (m *Member) Prefer(ctx context.Context, q *api.PreferRequest) ([]string, error) {
	answer, err := ask(ctx, m.client, q, (*nodeServer).Prefer, api.CoordinationClient.Prefer)
	if err != nil {
		return nil, err
	}
	m.questionLog(q).Info("preferred", "chosen", answer.GetDevices(), "source", "coordinator",
		"reason", answer.GetReason())
	return answer.GetDevices(), nil
}

// Alone answers a question that the coordinator has not answered, for a cause. It reads one file of the run
// directory, in memory, for at most a second.
func (m *Member) Alone(q *api.PreferRequest, cause error) []string {
	m.countAlone(admission.PreferCall)
	chosen, reason := m.chooser.choose(q)
	m.questionLog(q).Warn("preferred", "chosen", chosen, "source", "local", "reason", reason, "error", cause)
	return chosen
}

// questionLog returns the log of a question.
func (m *Member) questionLog(q *api.PreferRequest) *slog.Logger {
	return m.log.With("size", q.GetSize(), "available", len(q.GetAvailable()),
		"must_include", len(q.GetMustInclude()))
}

// countAlone counts a call without an answer of the coordinator.
func (m *Member) countAlone(call admission.Call) {
	if m.config.Observer != nil {
		m.config.Observer(call)
	}
}

// Allocated reports the devices that the kubelet took. The result has the same IDs in the container's order,
// so that the i-th GPU pairs with the i-th VF; without an answer of the coordinator the order depends only on
// this plugin's data. An error is always the coordinator's rejection, with a message for the pod's owner: the
// kubelet must fail the pod with the message. Call Returned when the kubelet's Allocate call ends. The
// attribute is for the log and names the container, if known.
func (m *Member) Allocated(ctx context.Context, ids []string) (order []string, to slog.Attr, err error) {
	ctx, cancel := context.WithTimeout(ctx, system.CoordinatorLimit)
	defer cancel()
	answer, err := m.report(ctx, ids)
	if refusal := answer.GetRefusal(); refusal != "" {
		m.log.Error("rejected allocation", "devices", ids, "reason", refusal)
		return nil, to, status.Error(codes.FailedPrecondition, refusal)
	}
	order = answer.GetDevices()
	if err != nil {
		m.unanswered.Store(strings.Join(ids, " "), true)
		m.countAlone(admission.AllocatedCall)
		order = m.chooser.inPairOrder(ids)
		m.log.Warn("no answer from the coordinator; ordered devices locally", "devices", order, "error", err)
	}
	m.record(ids)
	if o := answer.GetContainer(); o != nil {
		to = slog.String("container", o.GetNamespace()+"/"+o.GetPod()+"/"+o.GetContainer())
	}
	if !device.SameSet(order, ids) {
		order = slices.Sorted(slices.Values(ids))
	}
	return order, to, nil
}

func (m *Member) report(ctx context.Context, ids []string) (*api.AllocatedResponse, error) {
	q := &api.AllocatedRequest{Resource: m.announced.resource, Devices: ids}
	return ask(ctx, m.client, q, (*nodeServer).Allocated, api.CoordinationClient.Allocated)
}

// Returned reports the end of an Allocate to the coordinator, before the kubelet receives the response, or an
// error: the kubelet then rejects the pod. After an error Returned also writes one file of the run directory.
// Returned does not wait for a coordinator that has not answered: the coordinator learns of the end later.
func (m *Member) Returned(ctx context.Context, ids []string, failed bool) {
	if failed {
		m.record(nil) // the devices are no container's
	}
	if _, unanswered := m.unanswered.LoadAndDelete(strings.Join(ids, " ")); unanswered {
		m.announced.addEnd(ids)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), system.CoordinatorLimit)
	defer cancel()
	q := &api.ReturnedRequest{Resource: m.announced.resource, Devices: ids, Failed: failed}
	if _, err := ask(ctx, m.client, q, (*nodeServer).Returned, api.CoordinationClient.Returned); err != nil {
		m.log.Debug("end of an Allocate not reported in time", "devices", ids, "failed", failed, "error", err)
		m.announced.addEnd(ids)
	}
}

// record tells the other plugin the devices of the latest Allocate.
func (m *Member) record(ids []string) {
	if err := m.chooser.record(m.announced.locateDevices(ids)); err != nil {
		m.log.Debug("allocation not recorded for the other plugin", "error", err)
	}
}

// pairsLimit is longer than other limits: without an answer the container lacks the pairs file, not only the
// best devices.
const pairsLimit = 4 * system.QuestionLimit

// Pair returns for every GPU of the node the best of the VFs just reported with Allocated, or nil if the
// coordinator does not answer. The coordinator writes these VFs to the pairs file, unless file is "", and
// adds the container's GPUs before the answer to the Allocated with these GPUs. Pair returns false if the
// file is not written yet.
func (m *Member) Pair(ctx context.Context, vfs []pairs.VF, file string) ([]pairs.Served, bool) {
	ctx, cancel := context.WithTimeout(ctx, pairsLimit)
	defer cancel()
	q := &api.PairRequest{Resource: m.announced.resource, File: file}
	for _, vf := range vfs {
		q.Devices = append(q.Devices, vf.ID)
		q.Vfs = append(q.Vfs, &api.PairVF{
			Device: vf.ID, Address: vf.Address.String(), Rdma: vf.RDMA, Netdev: vf.Netdev,
		})
	}
	answer, err := ask(ctx, m.client, q, (*nodeServer).Pair, api.CoordinationClient.Pair)
	if err != nil {
		m.log.Warn("no pairs for the container", "vfs", len(vfs), "error", err)
		return nil, false
	}
	var served []pairs.Served
	for _, s := range answer.GetServed() {
		if gpu, err := topology.ParseAddress(s.GetGpu()); err == nil {
			served = append(served, pairs.Served{GPU: gpu, VF: s.GetDevice()})
		}
	}
	return served, answer.GetWritten()
}
