// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/dra/claims"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/rdma"
	"github.com/tandem-k8s/tandem/topology"
)

// teller answers questions of people about the node's devices and claims.
type teller struct {
	parts
	owners *owners
	files  *fileRestorer
}

// Status returns all devices under the resource names of the device plugins, and notes about unsupported
// features of the cluster.
func (t *teller) Status(context.Context) *api.StatusResponse {
	v := t.newest.Get()
	notes := v.listNotes()
	if t.config.NoGPUs != "" {
		notes = append(notes, t.config.NoGPUs)
	}
	if err := t.files.failed.Get(); err != nil {
		notes = append(notes, fmt.Sprintf("%s: %v", filesMissing, err))
	}
	return &api.StatusResponse{Resources: t.listResources(v), Notes: notes}
}

// listResources returns the devices of a view with their owners, by resource name.
func (t *teller) listResources(v *view) []*api.Resource {
	taken := t.takenDevices(v.State.Machine)
	byName := map[string]*api.Resource{}
	add := func(name string, kind device.Kind, one device.Device, at, held string) {
		if byName[name] == nil {
			byName[name] = &api.Resource{Name: name, Kind: string(kind), Connected: true}
		}
		status := &api.DeviceStatus{Device: one.Encode(), Switch: at}
		status.Owner, status.Allocated = taken[one.ID], taken[one.ID] != nil
		if held != "" && !status.Allocated {
			status.Owner, status.Allocated = parseHolder(held), true
		}
		byName[name].Devices = append(byName[name].Devices, status)
	}
	for _, g := range v.State.Machine.GPUs {
		add(g.Resource, device.GPU, g.Announced(), g.Switch, g.Held)
	}
	for _, vf := range v.State.Machine.VFs {
		add(vf.Pool, device.VF, rdma.Announced(vf.Device), vf.Switch, vf.Held)
	}
	resources := slices.SortedFunc(maps.Values(byName), func(a, b *api.Resource) int {
		return cmp.Compare(a.GetName(), b.GetName())
	})
	admission.MarkStranded(resources)
	return resources
}

// takenDevices returns the owners of devices that claims hold, by device ID; none while nothing is known of
// claims, which Status notes.
func (t *teller) takenDevices(machine pool.Machine) map[string]*api.Owner {
	taken := map[string]*api.Owner{}
	prepared, err := t.readClaims(machine).Get()
	if err != nil {
		return taken
	}
	for _, c := range prepared {
		owner := ownerOf(t.owners.outcomeOf(c))
		for _, p := range c.Devices {
			for _, id := range p.Holds() {
				taken[id] = owner
			}
		}
	}
	return taken
}

// ownerOf returns the owner of a claim's devices, if known. A claim does not identify the container, so the
// claim's name takes its place.
func ownerOf(o outcome) *api.Owner {
	return &api.Owner{Namespace: o.Namespace, Pod: cmp.Or(o.firstPod(), "?"), Container: "claim " + o.Name}
}

// parseHolder returns the holder of a device that a device plugin assigned: "pod team/train-0, by a device
// plugin".
func parseHolder(text string) *api.Owner {
	who, _, _ := strings.Cut(text, ", ")
	namespace, pod, known := strings.Cut(strings.TrimPrefix(who, "pod "), "/")
	if !known {
		return &api.Owner{Pod: who, Container: "by a device plugin"}
	}
	return &api.Owner{Namespace: namespace, Pod: pod, Container: "by a device plugin"}
}

// Explain returns the devices of a pod's claims, and rejections.
func (t *teller) Explain(_ context.Context, namespace, pod, _ string) ([]*api.Decision, error) {
	its := func(o outcome) bool {
		return (namespace == "" || o.Namespace == namespace) &&
			slices.ContainsFunc(o.Pods, func(p claims.Pod) bool { return p.Name == pod })
	}
	machine := t.newest.Get().State.Machine
	prepared, err := t.readClaims(machine).Get()
	if err != nil {
		return nil, fmt.Errorf("explain pod %s: %w", strings.TrimPrefix(namespace+"/"+pod, "/"), err)
	}
	var decisions []*api.Decision
	for _, c := range prepared {
		if o := t.owners.outcomeOf(c); its(o) {
			decisions = append(decisions, decisionsOf(machine, o)...)
		}
	}
	for _, o := range t.owners.lastRefusals() {
		if its(o) {
			one := newDecision(o)
			one.Refusal = o.Refused
			decisions = append(decisions, one)
		}
	}
	if len(decisions) == 0 {
		return nil, fmt.Errorf("explain pod %s: no claim of the pod is prepared on this node now, and none was "+
			"refused; the claims of an ended pod are released, and for a waiting pod kubectl describe has the "+
			"scheduler's reason",
			strings.TrimPrefix(namespace+"/"+pod, "/"))
	}
	return decisions, nil
}

func newDecision(o outcome) *api.Decision {
	one := &api.Decision{
		TookNano: int64(o.Took), Container: ownerOf(o), Known: "claim " + o.Namespace + "/" + o.Name,
	}
	if !o.Asked.IsZero() {
		one.TimeUnixNano = o.Asked.UnixNano()
	}
	return one
}

// decisionsOf returns the requests of a prepared claim.
func decisionsOf(machine pool.Machine, o outcome) (decisions []*api.Decision) {
	byRequest := map[string]*api.Decision{}
	for _, p := range o.Devices {
		one := byRequest[p.Request]
		if one == nil {
			one = newDecision(o)
			one.Resource = "request " + p.Request
			one.AllocatedUnixNano = max(one.TimeUnixNano, time.Unix(0, 1).UnixNano())
			byRequest[p.Request] = one
			decisions = append(decisions, one)
		}
		one.Size++
		one.Chosen = append(one.Chosen, p.Device)
		one.Allocated = append(one.Allocated, slices.Concat(p.GPUs, p.VFs)...)
		one.Pairs = append(one.Pairs, pairsOf(machine, p)...)
	}
	for _, one := range decisions {
		one.Reason = "the scheduler chose " + strings.Join(one.GetChosen(), " ")
	}
	return decisions
}

// pairsOf returns the pairs of a device with one or several.
func pairsOf(machine pool.Machine, p claims.Prepared) (pairs []*api.Pair) {
	for i := range min(len(p.GPUs), len(p.VFs)) {
		gpu, vf := p.GPUs[i], p.VFs[i]
		pairs = append(pairs, &api.Pair{Gpu: gpu, Vf: vf, Distance: describeDistance(machine, gpu, vf)})
	}
	return pairs
}

// describeDistance returns the distance of a GPU and a VF; "" if the node no longer has both.
func describeDistance(machine pool.Machine, gpu, vf string) string {
	var a, b topology.Address
	for _, g := range machine.GPUs {
		if g.ID == gpu {
			a = g.Card
		}
	}
	for _, v := range machine.VFs {
		if v.ID == vf {
			b = v.Address
		}
	}
	if a == (topology.Address{}) || b == (topology.Address{}) {
		return ""
	}
	return machine.Tree.Distance(a, b).Level.String()
}

// tellUnsound forwards the unsound devices of claims periodically until ctx is done.
func (t *teller) tellUnsound(ctx context.Context, to func([]coordination.Unsound)) {
	coordination.LookForUnsound(ctx, func() {
		if list, known := t.findUnsound(); known {
			to(list)
		}
	})
}

// findUnsound returns the unsound devices of the present view with a claim's pod; false if the claims are
// unknown.
func (t *teller) findUnsound() (list []coordination.Unsound, known bool) {
	v := t.newest.Get()
	prepared, err := t.readClaims(v.State.Machine).Get()
	if err != nil {
		return nil, false // Status reports the error
	}
	uids := map[kubelet.Pod]string{}
	for _, c := range prepared {
		o := t.owners.outcomeOf(c)
		for _, pod := range o.Pods {
			uids[kubelet.Pod{Namespace: o.Namespace, Name: pod.Name}] = string(pod.UID)
		}
	}
	return coordination.UnsoundOf(t.listResources(v), uids), true
}

// complaintPause is the time without an error after which an error without a reported end counts as new.
const complaintPause = time.Hour

// complaints logs the errors of continuous activities, each error once.
type complaints struct {
	log *slog.Logger

	mu   sync.Mutex
	last map[string]complaint // current error by consequence
}

type complaint struct {
	text string
	at   time.Time // last time of the error
}

func newComplaints(log *slog.Logger) *complaints {
	return &complaints{log: log, last: map[string]complaint{}}
}

// reportResult takes the result of each attempt: it logs an error with its consequence, unless the attempt
// before had the same error, and the end of the errors.
func (c *complaints) reportResult(consequence string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, failed := c.last[consequence]
	switch {
	case err == nil && failed:
		delete(c.last, consequence)
		c.log.Info("recovered from: "+consequence, "error", before.text)
	case err != nil:
		c.last[consequence] = complaint{err.Error(), time.Now()}
		if before.text != err.Error() {
			c.log.Warn(consequence, "error", err)
		}
	}
}

// reportError is report for an activity that reports only errors.
func (c *complaints) reportError(consequence string, err error) {
	c.mu.Lock()
	if before, failed := c.last[consequence]; failed && time.Since(before.at) > complaintPause {
		delete(c.last, consequence)
	}
	c.mu.Unlock()
	c.reportResult(consequence, err)
}
