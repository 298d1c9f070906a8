// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/resources"
	"github.com/tandem-k8s/tandem/topology"
)

// state is all memory between two decisions. A committed state is immutable: a decision changes a copy, and
// the commit makes the copy the next state.
type state struct {
	version   int // incremented by every Allocate; the observations of a question belong to a version
	ids       int // highest ID of a container in admission
	tree      *topology.Tree
	resources resources.Set

	allocates []holders.Allocate       // not yet in the kubelet's records
	known     map[string]holders.Known // pods of the kubelet's checkpoint, by UID
	listing   asking.Listing           // the last PodResources List
	found     holders.Holders          // by the last question, with later Allocates
	books     func() *books            // of tree, resources and found

	open *openAdmission // nil for none
}

// newState returns a state with a PCI tree and no devices.
func newState(tree *topology.Tree) *state {
	s := &state{tree: tree}
	s.hold(nil)
	return s
}

// clone returns a copy for a decision.
func (s *state) clone() *state {
	next := *s
	next.open = s.open.clone()
	next.allocates, next.found = slices.Clip(s.allocates), slices.Clip(s.found)
	return &next
}

// hold replaces the known holders.
func (s *state) hold(found holders.Holders) {
	tree, set := s.tree, s.resources
	s.found, s.books = found, sync.OnceValue(func() *books { return newBooks(tree, set, found) })
}

// nextID returns the ID for a new container in admission.
func (s *state) nextID() int {
	s.ids++
	return s.ids
}

// release removes the devices of a container that the kubelet rejects.
func (s *state) release(c *asking.Container) {
	if c == nil {
		return
	}
	s.allocates = slices.DeleteFunc(slices.Clone(s.allocates), func(a holders.Allocate) bool {
		return device.SameSet(a.IDs, c.Devices[a.Resource])
	})
	s.hold(slices.DeleteFunc(slices.Clone(s.found), func(h holders.Holder) bool {
		return h.Open && c.HasAny(h.Devices)
	}))
}

// Limits of remembered Allocates, and of holders between two questions. With a readable checkpoint there is
// one Allocate for each resource.
const (
	maxAllocates = 256
	maxHolders   = 4096
)

// recordAllocate adds an Allocate of a container until the kubelet's records contain the Allocate. The
// kubelet writes its checkpoint when a container has all its devices, and allocates each resource of a
// container once. An Allocate before another checkpoint, or of the same resource, is therefore over.
// Allocates of a different container are over too: if the kubelet continues without a new checkpoint, the
// kubelet has rejected the earlier container.
func (s *state) recordAllocate(c *asking.Container, a holders.Allocate) {
	if asker := c.Asker; asker != nil && asker.Exact {
		a.UID, a.Pod, a.Name = asker.UID, asker.Pod, asker.Name
	}
	over := func(earlier holders.Allocate) bool {
		return a.Recorded != kubelet.Identity{} && (earlier.Recorded != a.Recorded ||
			earlier.Resource == a.Resource || !device.SameSet(earlier.IDs, c.Devices[earlier.Resource]))
	}
	all := append(slices.DeleteFunc(slices.Clone(s.allocates), over), a)
	s.allocates = all[max(0, len(all)-maxAllocates):]
	h := holders.Holder{UID: a.UID, Pod: a.Pod, Name: a.Name, Devices: c.Devices, Open: true}
	if name := c.Likely(); name != nil {
		h.Pod, h.Name = name.Pod, name.Name
	} else if c.Identified() {
		h.Pod = c.Pods[0]
	}
	before := s.open.allocated()
	found := slices.DeleteFunc(slices.Clone(s.found), func(h holders.Holder) bool {
		return h.Open && before != nil && before.ID == c.ID && before.HasAny(h.Devices)
	})
	found = append(found, h)
	s.hold(found[max(0, len(found)-maxHolders):])
}

// foresees reports whether a question is for all remaining devices of the plan, directly after an Allocate of
// the rest. The input of the plan is known to be right: PodResources was read, and a single pod remains.
func (s *state) foresees(q asking.Question, asked time.Time) bool {
	p, c := s.open.live(asked), s.open.allocated()
	if p == nil || p.choice == nil || c == nil || !s.open.foreseen || !s.open.isRecent(asked) || !c.Looked ||
		!c.Identified() {
		return false
	}
	planned := p.devices[q.Resource]
	missing := func(id string) bool { return !slices.Contains(q.Available, id) }
	held := func(id string) bool { return !s.books().isFree(q.Resource, id) }
	return len(p.devices) == 1 && len(planned) == q.Size && len(q.MustInclude) == 0 &&
		!slices.ContainsFunc(planned, missing) && !slices.ContainsFunc(q.Available, held)
}

// checkAnnounced returns an error for a question about devices not announced.
func (s *state) checkAnnounced(q asking.Question) error {
	r := s.resources[q.Resource]
	switch {
	case r == nil:
		return fmt.Errorf("choose %s: no plugin has announced the resource", q.Resource)
	case len(q.Available) > len(r.Devices) || len(q.MustInclude) > len(r.Devices):
		return fmt.Errorf("choose among %d devices of %s: only %d were announced",
			len(q.Available), q.Resource, len(r.Devices))
	}
	return nil
}
