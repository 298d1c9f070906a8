// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// patience bounds the check of a period, which is exponential in the number of simultaneous events.
const patience = time.Minute

// Breach is a breach of a promise: no order of the events explains the results.
type Breach struct {
	Promise Promise
	Event   Event // the first event that has no place in any order
	Reason  string
	Before  History // events until the breach
}

// Error returns the breach with the end of the story.
func (b *Breach) Error() string {
	const last = 40
	return fmt.Sprintf("%s: %s\n%v\nafter\n%s", b.Promise, b.Reason, b.Event, b.Before.Last(last).Story())
}

// Check judges a history, node by node and period by period. The result is nil, a [*Breach], or an error for
// a history that cannot be judged.
func Check(h History, machine Machine, rules Rules) error {
	if h.Lost > 0 {
		return fmt.Errorf("judge history: %d events are not recorded", h.Lost)
	}
	nodes := map[string][]Event{}
	for _, e := range h.Events {
		nodes[e.Node] = append(nodes[e.Node], e)
	}
	m := model{Machine: machine, Rules: rules, breaches: map[*Event][]breach{}}
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		for _, p := range periods(nodes[node]) {
			if err := m.check(p, nodes[node]); err != nil {
				return err
			}
		}
	}
	return nil
}

// check judges a period.
func (m model) check(p period, events []Event) error {
	switch result := porcupine.CheckOperationsTimeout(m.porcupine(p.init), p.operations, patience); result {
	case porcupine.Ok:
		return nil
	case porcupine.Illegal:
		return m.explain(p, events)
	default:
		return fmt.Errorf("judge history: no result in %v for %d events from %d on",
			patience, len(p.operations), p.begin)
	}
}

// explain finds the shortest prefix of a period that has no order, and the event at its end.
func (m model) explain(p period, events []Event) error {
	ended := slices.Clone(p.operations)
	slices.SortStableFunc(ended, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	n := sort.Search(len(ended)-1, func(i int) bool {
		return !porcupine.CheckOperations(m.porcupine(p.init), p.until(ended[i].Return))
	})
	clear(m.breaches)
	porcupine.CheckOperations(m.porcupine(p.init), p.until(ended[n].Return))
	last := ended[n].Input.(input).event
	b := &Breach{Event: *last}
	if found := m.breaches[last]; len(found) > 0 {
		b.Promise, b.Reason = found[0].promise, found[0].reason
	}
	for _, e := range events {
		if e.Call <= ended[n].Return {
			b.Before.Events = append(b.Before.Events, e)
		}
	}
	return b
}

// until returns the operations up to a time. Of later ends only those of releases can have had an effect.
func (p period) until(end int64) []porcupine.Operation {
	var prefix []porcupine.Operation
	for _, o := range p.operations {
		if o.Return <= end || o.Call <= end && o.Input.(input).event.Kind == Release {
			prefix = append(prefix, o)
		}
	}
	return prefix
}
