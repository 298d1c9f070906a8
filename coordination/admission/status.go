// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
)

// Status returns the status of the state and of the kubelet's records now. Status changes nothing.
func (i *inspector) Status(ctx context.Context) *api.StatusResponse {
	return newStatus(i.committed.current(), i.committed.now(), i.cachedSurvey(ctx, 0))
}

// Resources returns the resources of both plugins with their devices. The kubelet may be read, for up to a
// second.
func (i *inspector) Resources() []*api.Resource {
	known := i.cachedSurvey(context.Background(), surveyTTL)
	return newStatus(i.committed.current(), i.committed.now(), known).GetResources()
}

// newStatus returns the announced devices with their holders.
func newStatus(s *state, now time.Time, known survey) *api.StatusResponse {
	answer := &api.StatusResponse{}
	b, ended := newBooks(s.tree, s.resources, known.livingHolders()), newBooks(s.tree, s.resources, known.found)
	for _, r := range s.resources.All() {
		answer.Resources = append(answer.Resources, resourceStatus(r, b, ended))
	}
	MarkStranded(answer.Resources)
	if p := s.open.live(now); p != nil {
		answer.Plan = &api.Plan{Devices: deviceLists(p.Devices), ExpiresUnixNano: p.Expires.UnixNano()}
	}
	return answer
}

// deviceLists returns devices by resource in the wire format.
func deviceLists(devices map[string][]string) map[string]*api.DeviceList {
	lists := make(map[string]*api.DeviceList, len(devices))
	for name, ids := range devices {
		lists[name] = &api.DeviceList{Ids: slices.Clone(ids)}
	}
	return lists
}

// resourceStatus returns the devices of a resource with their holders, by the books, or with their ended
// holders.
func resourceStatus(r *device.Resource, b, ended *books) *api.Resource {
	m := &api.Resource{Name: r.Name, Kind: string(r.Kind), Connected: r.Joined}
	for _, d := range r.Ordered() {
		status := &api.DeviceStatus{Device: d.Encode(), Switch: b.tree.Switch(d.Address)}
		if h := b.holders.Of(r.Name, d.ID); h != nil {
			status.Allocated, status.Owner = true, ownerOf(h)
		} else if last := ended.holders.Of(r.Name, d.ID); last != nil {
			status.Ended = ownerOf(last)
		}
		m.Devices = append(m.Devices, status)
	}
	return m
}

// ownerOf returns the name of a holder, nil if unknown.
func ownerOf(h *holders.Holder) *api.Owner {
	if h.Pod == (kubelet.Pod{}) || h.Name == "" {
		return nil
	}
	return encodeOwner(new(h.Container()), h.UID)
}

// MarkStranded marks the healthy free devices whose switch has no free device of the other kind.
func MarkStranded(resources []*api.Resource) {
	free := map[string]map[string]bool{} // switches by kind
	each := func(do func(kind string, d *api.DeviceStatus)) {
		for _, r := range resources {
			for _, d := range r.GetDevices() {
				if d.GetDevice().GetHealthy() && !d.GetAllocated() {
					do(r.GetKind(), d)
				}
			}
		}
	}
	each(func(kind string, d *api.DeviceStatus) {
		if free[kind] == nil {
			free[kind] = map[string]bool{}
		}
		free[kind][d.GetSwitch()] = true
	})
	each(func(kind string, d *api.DeviceStatus) {
		d.Stranded = !free[string(device.Kind(kind).Other())][d.GetSwitch()]
	})
}

// Holding is a running container with its devices.
type Holding struct {
	Owner     *api.Owner
	GPUs, VFs int
	Apart     int // GPUs that share no switch with a VF of their own; with shared VFs, with any VF

	units    map[string]bool
	switches map[string]*counts
}

// counts holds the numbers of devices of one switch.
type counts struct{ gpus, vfs int }

// FindDegraded returns the degraded containers with a known owner, by name.
func FindDegraded(resources []*api.Resource) []*Holding {
	var list []*Holding
	for _, h := range holdingsByContainer(resources) {
		h.countApart()
		if h.VFs > 0 && h.Apart > 0 {
			list = append(list, h)
		}
	}
	slices.SortFunc(list, func(a, b *Holding) int {
		return cmp.Or(cmp.Compare(a.Owner.GetNamespace(), b.Owner.GetNamespace()),
			cmp.Compare(a.Owner.GetPod(), b.Owner.GetPod()),
			cmp.Compare(a.Owner.GetContainer(), b.Owner.GetContainer()))
	})
	return list
}

// holdingsByContainer returns the devices of all containers, by the pod's UID or, if unknown, its name, and
// the container's name. A unit that two resources have counts once; replicas count each.
func holdingsByContainer(resources []*api.Resource) map[[2]string]*Holding {
	held := map[[2]string]*Holding{}
	for _, r := range resources {
		for _, d := range r.GetDevices() {
			owner := d.GetOwner()
			if owner == nil {
				continue
			}
			pod := cmp.Or(owner.GetUid(), owner.GetNamespace()+"/"+owner.GetPod()) // no UID has a slash
			of := [2]string{pod, owner.GetContainer()}
			if held[of] == nil {
				held[of] = &Holding{Owner: owner, units: map[string]bool{}, switches: map[string]*counts{}}
			}
			unit := d.GetDevice().GetUnit()
			if unit == "" || d.GetDevice().GetShared() || !held[of].units[unit] {
				held[of].units[unit] = true
				held[of].add(device.Kind(r.GetKind()), d.GetSwitch())
			}
		}
	}
	return held
}

func (h *Holding) add(kind device.Kind, at string) {
	if h.switches[at] == nil {
		h.switches[at] = &counts{}
	}
	if kind == device.GPU {
		h.GPUs++
		h.switches[at].gpus++
	} else {
		h.VFs++
		h.switches[at].vfs++
	}
}

// countApart counts the GPUs without a VF on their switch. Each GPU needs a VF of its own if there are as
// many VFs as GPUs; otherwise any VF, because a VF serves several GPUs.
func (h *Holding) countApart() {
	for name, n := range h.switches {
		switch {
		case !topology.IsSwitch(name) || n.vfs == 0:
			h.Apart += n.gpus
		case h.VFs >= h.GPUs:
			h.Apart += max(0, n.gpus-n.vfs)
		}
	}
}

// report collects log records, observer events and history of a decision until the commit.
type report struct {
	records []func(*slog.Logger)
	events  []any // see Config.Observer

	view     kubelet.Reading[kubelet.View] // of PodResources: names the containers of earlier decisions
	question *decisionInput                // the answered question, nil for none
	handover *api.Decision                 // the answered Allocate, nil for none
	paired   *openAdmission                // with the pairs files that are due, nil for none
}

func (r *report) warn(text string, args ...any) {
	r.records = append(r.records, func(log *slog.Logger) { log.Warn(text, args...) })
}

func (r *report) error(text string, args ...any) {
	r.records = append(r.records, func(log *slog.Logger) { log.Error(text, args...) })
}

// observe adds an event for the observer.
func (r *report) observe(event any) { r.events = append(r.events, event) }

// publish logs the records and sends the events.
func (r *report) publish(log *slog.Logger, observer func(event any)) {
	for _, record := range r.records {
		record(log)
	}
	if observer == nil {
		return
	}
	for _, event := range r.events {
		observer(event)
	}
}

// addToHistory adds the decision to the history.
func (r *report) addToHistory(log *decisionLog) {
	if view, err := r.view.Get(); err == nil {
		log.resolveContainers(view)
	}
	if r.question != nil {
		log.addQuestion(r.question)
	}
	if r.handover != nil {
		log.recordAllocate(r.handover)
	}
}
