// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// record is the kubelet's checkpoint with the Allocates since.
type record struct {
	checkpoint kubelet.Checkpoint
	unreadable error   // why the checkpoint is unknown
	before     Holders // of the last search
	allocates  []Allocate
	kubelet    string // that runs now; "" if unknown
}

// newRecord returns the record of sources.
func newRecord(s Sources) *record {
	r := &record{before: s.Before, allocates: s.Allocates, kubelet: s.Kubelet}
	r.checkpoint, r.unreadable = s.Recorded.Get()
	return r
}

// containers returns the recorded containers, or the holders of the last search if the checkpoint is
// unreadable.
func (r *record) containers() (all []*Holder) {
	if r.unreadable != nil {
		for _, h := range r.before {
			h.Open = false
			all = append(all, &h)
		}
		return all
	}
	for key, devices := range r.checkpoint.Containers() {
		uid, name, _ := strings.Cut(key, "/")
		all = append(all, &Holder{UID: uid, Name: name, Devices: devices, Life: r.kubelet})
	}
	slices.SortFunc(all, func(a, b *Holder) int {
		return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// lost returns the holders of the last search that the checkpoint lacks although the kubelet lists their
// pods: a kubelet has started since, without its records, and offers the devices of running containers.
// While no list is available, all pods of earlier lists count.
func (r *record) lost(named *podNames) (all []*Holder) {
	if r.unreadable != nil {
		return nil
	}
	recorded := map[string]bool{}
	for key := range r.checkpoint.Containers() {
		uid, _, _ := strings.Cut(key, "/")
		recorded[uid] = true
	}
	for _, h := range r.before {
		lives := named.isTold(h.UID) || named.untold != nil && named.known[h.UID].Told
		if lives && !h.Open && !recorded[h.UID] && (h.Life == "" || h.Life != r.kubelet) {
			h.Lost = true
			all = append(all, &h)
		}
	}
	return all
}

// isShared reports whether the checkpoint has a device several times.
func (r *record) isShared(d device) bool {
	return len(r.checkpoint.Holders(d.resource, []string{d.id})) > 1
}

// isGiven reports whether the kubelet has given a device to any container since the checkpoint: to the next
// container of the same pod, or to a later pod.
func (r *record) isGiven(d device) bool {
	return slices.ContainsFunc(r.allocates, func(a Allocate) bool {
		return a.Recorded == r.checkpoint.Identity && a.gives(d)
	})
}

// isGivenAway reports whether the kubelet has given a device of a recorded container to another pod since the
// checkpoint.
func (r *record) isGivenAway(h *Holder, d device) bool {
	return r.unreadable == nil && slices.ContainsFunc(r.allocates, func(a Allocate) bool {
		another := a.Anew || a.UID != "" && a.UID != h.UID
		return another && a.Recorded == r.checkpoint.Identity && a.gives(d)
	})
}

// isWritten reports whether the checkpoint was written after an Allocate. A container has all its devices
// when the kubelet writes the checkpoint.
func (r *record) isWritten(a Allocate) bool {
	return r.unreadable == nil && a.Recorded != (kubelet.Identity{}) && a.Recorded != r.checkpoint.Identity
}
