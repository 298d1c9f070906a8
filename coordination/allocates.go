// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
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

// ownAllocates are the open Allocate calls of this process.
type ownAllocates struct {
	plugin uint64 // random number of this process

	mu      sync.Mutex
	count   uint64 // of starts and ends so far
	open    map[uint64]bool
	changed system.Signal
}

// newOwnAllocates returns an empty set.
func newOwnAllocates() *ownAllocates {
	return &ownAllocates{plugin: rand.Uint64() | 1, open: map[uint64]bool{}}
}

// startCall adds a call.
func (o *ownAllocates) startCall() *api.Call {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.count++
	o.open[o.count] = true
	o.changed.Raise()
	return &api.Call{Plugin: o.plugin, Number: o.count}
}

// endCall removes a call.
func (o *ownAllocates) endCall(c *api.Call) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.count++
	delete(o.open, c.GetNumber())
	o.changed.Raise()
}

// encode returns the open calls, and a channel that is closed after the next change.
func (o *ownAllocates) encode() (m *api.OpenAllocatesRequest, changed <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	open := slices.Sorted(maps.Keys(o.open))
	return &api.OpenAllocatesRequest{Plugin: o.plugin, Count: o.count, Open: open}, o.changed.Next()
}

// Allocate is an Allocate call of the kubelet.
type Allocate struct {
	IDs []string // of the devices

	call       *api.Call
	stop       func() bool // of the wait for the end of the kubelet's call
	unanswered bool        // the coordinator has not answered the report
}

// StartAllocate starts an Allocate of devices, which is open until Returned, or until ctx is done: then the
// kubelet no longer waits.
func (m *Member) StartAllocate(ctx context.Context, ids []string) *Allocate {
	call := m.client.allocates.startCall()
	stop := context.AfterFunc(ctx, func() { m.client.allocates.endCall(call) })
	return &Allocate{IDs: ids, call: call, stop: stop}
}

// Allocated reports the devices that the kubelet took. The result has the same IDs in the container's order,
// so that the i-th GPU pairs with the i-th VF; without an answer of the coordinator the order depends only on
// this plugin's data. An error is always the coordinator's rejection, with a message for the pod's owner: the
// kubelet must fail the pod with the message. The attribute is for the log and names the container, if known.
func (m *Member) Allocated(ctx context.Context, a *Allocate) (order []string, to slog.Attr, err error) {
	ctx, cancel := context.WithTimeout(ctx, system.CoordinatorLimit)
	defer cancel()
	answer, err := m.report(ctx, a)
	if refusal := answer.GetRefusal(); refusal != "" {
		m.log.Error("rejected allocation", "devices", a.IDs, "reason", refusal)
		return nil, to, status.Error(codes.FailedPrecondition, refusal)
	}
	order = answer.GetDevices()
	if err != nil {
		a.unanswered = true
		m.countAlone(admission.AllocatedCall)
		order = m.chooser.inPairOrder(a.IDs)
		m.log.Warn("no answer from the coordinator; ordered devices locally", "devices", order, "error", err)
	}
	m.record(a.IDs)
	if o := answer.GetContainer(); o != nil {
		to = slog.String("container", o.GetNamespace()+"/"+o.GetPod()+"/"+o.GetContainer())
	}
	if !device.SameSet(order, a.IDs) {
		order = slices.Sorted(slices.Values(a.IDs))
	}
	return order, to, nil
}

func (m *Member) report(ctx context.Context, a *Allocate) (*api.AllocatedResponse, error) {
	q := &api.AllocatedRequest{Resource: m.announced.resource, Devices: a.IDs, Call: a.call}
	return ask(ctx, m.client, q, (*nodeServer).Allocated, api.CoordinationClient.Allocated)
}

// Returned reports the end of an Allocate to the coordinator, before the kubelet receives the response, or an
// error: the kubelet then rejects the pod. After an error Returned also writes one file of the run directory.
// A coordinator that has not answered is not asked again, and learns only that the call is over: the kubelet
// does not wait twice.
func (m *Member) Returned(ctx context.Context, a *Allocate, failed bool) {
	defer m.client.allocates.endCall(a.call)
	a.stop()
	if failed {
		m.record(nil) // the devices are no container's
	}
	if a.unanswered {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), system.CoordinatorLimit)
	defer cancel()
	q := &api.ReturnedRequest{Resource: m.announced.resource, Devices: a.IDs, Failed: failed, Call: a.call}
	if _, err := ask(ctx, m.client, q, (*nodeServer).Returned, api.CoordinationClient.Returned); err != nil {
		m.log.Debug("end of an Allocate not reported", "devices", a.IDs, "failed", failed, "error", err)
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
