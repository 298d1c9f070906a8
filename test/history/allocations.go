// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"

	"github.com/tandem-k8s/tandem/topology/placement"
)

// judgeAllocation judges an Allocate.
func (m model) judgeAllocation(s state, in input) []breach {
	e := in.event
	owners := m.judgeOwners(s, in, e.Resource, e.Devices)
	if e.Refusal != "" {
		if len(owners) > 0 || m.justified(s, in) {
			return nil
		}
		return []breach{{Refused, e.Refusal}}
	}
	found := owners
	if e.Alone {
		return append(found, breach{NoAnswer, or(e.Text, "the coordinator has no part")})
	}
	if e.Order != nil && !sameSet(e.Order, e.Devices) {
		found = append(found, breach{OtherDevices, words(e.Order)})
	}
	if n := e.Named; n != nil && (n.Pod != e.Pod || !m.Names && n.Container != e.Container) {
		found = append(found, breach{Another, fmt.Sprintf("Tandem names %s/%s", n.Pod, n.Container)})
	}
	return found
}

// justified reports whether a pod requires alignment that a container with these devices cannot have.
func (m model) justified(s state, in input) bool {
	if in.spec == nil || !in.spec.Required || in.container == nil {
		return false
	}
	request := m.request(s, in, in.nodes).with(in.event.Resource,
		m.placed(in.event.Resource, in.event.Devices))
	best, err := m.best(request)
	return err != nil || best.apart() > 0
}

// judgeVerdict judges whether the kubelet has admitted or rejected a pod rightly.
func (m model) judgeVerdict(s state, in input) []breach {
	e := in.event
	switch {
	case e.Own:
		return nil
	case e.Refusal != "" && !in.refusal:
		return []breach{{Refused, e.Refusal}}
	case e.Refusal != "" || in.spec == nil || !in.spec.Required:
		return nil
	}
	var found []breach
	for i := range in.spec.Containers {
		c := &in.spec.Containers[i]
		if c.Init || !m.paired(c) {
			continue
		}
		held := halves{}
		for name := range c.Requests {
			ids := s.of(name, func(o owner) bool { return o.uid == e.UID && o.container == c.Name })
			held[name] = placement.Half{Count: len(ids), Held: m.placed(name, ids)}
		}
		if got, err := m.best(held); err != nil || got.apart() > 0 {
			found = append(found, breach{NotEnforced, fmt.Sprintf("%s/%s has pairs %v", e.Pod, c.Name, got)})
		}
	}
	return found
}
