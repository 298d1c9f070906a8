// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"iter"
	"maps"
	"slices"
	"time"
)

// Shrink returns a script that still breaks, with as few and as simple events as removing and simplifying
// one by one leads to.
func Shrink(script Script, breaks func(Script) bool) Script {
	for before := ""; before != script.String(); {
		before = script.String()
		script = remove(script, breaks)
		for i := range script.Events {
			script = simplify(script, i, breaks)
		}
	}
	return script
}

// remove removes events, first many at once, from the end on.
func remove(script Script, breaks func(Script) bool) Script {
	for size := max(1, len(script.Events)/2); size > 0; size /= 2 {
		for end := len(script.Events); end > 0; end -= size {
			fewer := script
			fewer.Events = slices.Delete(slices.Clone(script.Events), max(0, end-size), end)
			if breaks(fewer) {
				script = fewer
			}
		}
	}
	return script
}

// simplify simplifies an event, again and again.
func simplify(script Script, i int, breaks func(Script) bool) Script {
	try := func() bool {
		for e := range script.Events[i].simpler() {
			simple := script
			simple.Events = slices.Clone(script.Events)
			simple.Events[i] = e
			if breaks(simple) {
				script = simple
				return true
			}
		}
		return false
	}
	for try() {
	}
	return script
}

// smallDice is the number of dice that the search for simple dice tries.
const smallDice = 32

// simpler yields events that are simpler in one respect.
func (e Event) simpler() iter.Seq[Event] {
	return func(yield func(Event) bool) {
		for _, edit := range e.edits() {
			simple := e
			simple.Containers = slices.Clone(e.Containers)
			if edit(&simple); simple.String() != e.String() && !yield(simple) {
				return
			}
		}
		for dice := range min(e.Dice, smallDice) {
			simple := e
			if simple.Dice = dice; !yield(simple) {
				return
			}
		}
	}
}

// edits are simplifications, which may have no effect.
func (e Event) edits() []func(*Event) {
	edits := []func(*Event){
		func(e *Event) { e.Alignment, e.Leaves, e.Newest = "", "", false },
		func(e *Event) { e.Alignment = "" },
		func(e *Event) { e.Leaves = "" },
		func(e *Event) { e.Newest = false },
		func(e *Event) { e.After = min(e.After, simple[e.Kind]) },
		func(e *Event) { e.Late = 0 },
	}
	for _, late := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond} {
		edits = append(edits, func(e *Event) { e.Late = min(e.Late, late) })
	}
	for i, c := range e.Containers {
		edits = append(edits, func(e *Event) { e.Containers = slices.Delete(e.Containers, i, i+1) })
		for _, resource := range slices.Sorted(maps.Keys(c.Requests)) {
			edits = append(edits, func(e *Event) {
				requests := maps.Clone(c.Requests)
				if requests[resource]--; requests[resource] == 0 {
					delete(requests, resource)
				}
				e.Containers[i].Requests = requests
			})
		}
	}
	return edits
}

// simple are the shortest times before events: pods come no faster than by the clocks of the sources.
var simple = map[Kind]time.Duration{podArrives: time.Second, timePasses: time.Second}
