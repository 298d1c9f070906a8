// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"maps"
	"slices"
)

// judgeQuestion judges an answer.
func (m model) judgeQuestion(s state, in input) []breach {
	e := in.event
	if e.Alone {
		return []breach{{NoAnswer, or(e.Text, "the plugin answers alone")}}
	}
	if reason := e.contract(); reason != "" {
		return []breach{{Contract, reason}}
	}
	found := m.judgeFree(s, in)
	if m.judgesPairs(m.Machine, in) {
		found = append(found, m.judgePairs(s, in)...)
	}
	return found
}

// contract returns how an answer breaks the contract of GetPreferredAllocation, or "".
func (e Event) contract() string {
	distinct := map[string]bool{}
	for _, id := range e.Devices {
		if !slices.Contains(e.Offer.Available, id) {
			return id + " is not available"
		}
		distinct[id] = true
	}
	for _, id := range e.Offer.MustInclude {
		if !distinct[id] {
			return id + " must be included"
		}
	}
	if len(distinct) != e.Offer.Size || len(e.Devices) != e.Offer.Size {
		return fmt.Sprintf("%d devices, of them %d different, instead of %d",
			len(e.Devices), len(distinct), e.Offer.Size)
	}
	return ""
}

// judgeFree compares the devices that an answer took for free with the free devices of the state. An answer
// with a device of another container takes the device for free.
func (m model) judgeFree(s state, in input) []breach {
	e := in.event
	var found []breach
	if id, other, conflict := s.conflict(in.owner(), e.Resource, e.Devices); conflict {
		found = append(found, forgotten(e.Resource, id, other))
	}
	for _, name := range slices.Sorted(maps.Keys(e.Free)) {
		free := map[string]bool{}
		for _, id := range e.Free[name] {
			free[id] = true
		}
		for _, d := range m.Devices[name] {
			switch other, held := s[owned{name, d.ID}]; {
			case held && free[d.ID]:
				found = append(found, forgotten(name, d.ID, other))
			case !held && !free[d.ID]:
				found = append(found, breach{Stuck, fmt.Sprintf("%s %s is free", name, d.ID)})
			}
		}
	}
	return found
}

func forgotten(resource, id string, o owner) breach {
	promise := Forgotten
	if o.init {
		promise = ForgottenInit
	}
	return breach{promise, fmt.Sprintf("%s %s belongs to %v", resource, id, o)}
}
