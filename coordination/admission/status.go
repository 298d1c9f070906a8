// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/history"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/resources"
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
	b := newBooks(s.tree, s.resources, known.found)
	for _, r := range s.resources.All() {
		answer.Resources = append(answer.Resources, resourceStatus(r, b, known))
	}
	if p := s.open.live(now); p != nil {
		answer.Plan = &api.Plan{Devices: map[string]*api.DeviceList{}, ExpiresUnixNano: p.expires.UnixNano()}
		for name, ids := range p.devices {
			answer.Plan.Devices[name] = &api.DeviceList{Ids: slices.Clone(ids)}
		}
	}
	return answer
}

// resourceStatus returns the devices of a resource with their holders.
func resourceStatus(r *resources.Resource, b *books, known survey) *api.Resource {
	partners := switchesWithFree(r.Kind.Other(), b, known)
	m := &api.Resource{Name: r.Name, Kind: string(r.Kind), Connected: r.Joined}
	for _, d := range r.Ordered() {
		status := &api.DeviceStatus{Device: d.Encode(), Switch: b.tree.Switch(d.Address)}
		switch h := b.held.Of(r.Name, d.ID); {
		case h == nil:
		case known.hasEnded(h):
			status.Ended = ownerOf(h)
		default:
			status.Allocated, status.Owner = true, ownerOf(h)
		}
		status.Stranded = d.Healthy && !status.Allocated && !partners[status.Switch]
		m.Devices = append(m.Devices, status)
	}
	return m
}

// ownerOf returns the name of a holder, nil if unknown.
func ownerOf(h *holders.Holder) *api.Owner {
	if h.Pod == (kubelet.Pod{}) || h.Name == "" {
		return nil
	}
	return history.Owner(kubelet.Container{Pod: h.Pod, Name: h.Name}, h.UID)
}

// switchesWithFree returns the switches with a free device of a kind.
func switchesWithFree(kind device.Kind, b *books, known survey) map[string]bool {
	switches := map[string]bool{}
	for _, r := range b.resources.OfKind(kind) {
		for _, d := range r.Ordered() {
			if h := b.held.Of(r.Name, d.ID); d.Healthy && (h == nil || known.hasEnded(h)) {
				switches[b.tree.Switch(d.Address)] = true
			}
		}
	}
	return switches
}
